//! Words piece by piece: quotes, variables, substitutions.
//!
//! Expansions that set, run or look through something (`${x:=y}`, `${x@P}`, `${!x}`, arithmetic with names, which runs
//! what their values say) are not understood.

use tree_sitter::Node as Branch;

use super::super::syntax::{Node, Piece, Word, Words};
use super::super::words;
use super::{Read, Reader, children};

/// Operators inside `${…}` that only choose or cut.
const CUTTING: &[&str] =
    &["-", ":-", "+", ":+", "?", ":?", "#", "##", "%", "%%", "/", "//", "/#", "/%", ",", ",,", "^", "^^"];

impl Reader<'_> {
    /// Appends what the node means.
    pub(super) fn pieces(&mut self, node: Branch<'_>, word: &mut Word) -> Read<()> {
        self.deeper(|reader| reader.piece(node, word))
    }

    fn piece(&mut self, node: Branch<'_>, word: &mut Word) -> Read<()> {
        let text = self.text(node);
        let decoded = match node.kind() {
            "word" | "variable_name" => words::bare(text, word),
            "number" if node.child_count() == 0 => words::bare(text, word),
            "{" | "}" | "[" | "]" => words::bare(text, word),
            "$" => {
                word.push("$");
                Ok(())
            }
            "raw_string" => {
                word.bare = false;
                word.push(text.trim_matches('\''));
                if text.matches('\'').count() == 2 { Ok(()) } else { Err("a quote is not understood") }
            }
            "ansi_c_string" => {
                word.bare = false;
                let inside = text.strip_prefix("$'").and_then(|text| text.strip_suffix('\''));
                inside.map_or(Err("a quote is not understood"), |inside| words::ansi(inside, word))
            }
            "string" => return self.string(node, word),
            "concatenation" => return self.concatenation(node, word),
            "simple_expansion" => {
                word.bare = false;
                word.pieces.push(variable(text, word, Words::Many));
                self.simple_name(node)?;
                Ok(())
            }
            "expansion" => {
                word.bare = false;
                let piece = variable(text, word, Words::Many);
                word.pieces.push(piece);
                return self.expansion(node);
            }
            "command_substitution" => {
                word.bare = false;
                word.pieces.push(Piece::Unknown(Words::Many));
                return self.substitution(node);
            }
            "process_substitution" => {
                word.bare = false;
                word.pieces.push(Piece::Pipe);
                return self.substitution(node);
            }
            "arithmetic_expansion" => {
                word.bare = false;
                word.pieces.push(Piece::Unknown(Words::One));
                return self.arithmetic(node);
            }
            "brace_expression" => {
                word.pieces.push(Piece::Unknown(Words::Many));
                Ok(())
            }
            _ => Err("a word is not understood"),
        };
        decoded.map_err(|what| self.unclear(node, what))
    }

    fn concatenation(&mut self, node: Branch<'_>, word: &mut Word) -> Read<()> {
        let parts = children(node);
        let mut at = node.start_byte();
        // `[$x]` and its like: a class whose letters are not known.
        let class = parts.iter().any(|part| self.text(*part).contains('[')) && self.text(node).contains(']');
        // The tree cuts `pass[w]d` to pieces that mean something only together.
        let mut plain = at..at;
        for (number, part) in parts.iter().enumerate() {
            if part.start_byte() != at {
                return Err(self.unclear(node, "a word has a gap"));
            }
            at = part.end_byte();
            if matches!(part.kind(), "word" | "number" | "{" | "}" | "[" | "]") && part.child_count() == 0 {
                plain.end = at;
                continue;
            }
            self.plain(node, &plain, word)?;
            plain = at..at;
            if part.kind() == "$" && number + 1 < parts.len() {
                return Err(self.unclear(node, "something is expanded in a way that is not understood"));
            }
            self.pieces(*part, word)?;
        }
        self.plain(node, &plain, word)?;
        if class && word.bare_bracket() {
            word.pieces.push(Piece::Unknown(Words::Many));
        }
        Ok(())
    }

    fn plain(&self, node: Branch<'_>, range: &std::ops::Range<usize>, word: &mut Word) -> Read<()> {
        words::bare(&self.source[range.clone()], word).map_err(|what| self.unclear(node, what))
    }

    /// Between the expansions of a string its characters count, not its nodes: the tree drops blanks there.
    fn string(&mut self, node: Branch<'_>, word: &mut Word) -> Read<()> {
        word.bare = false;
        let (from, to) = (node.start_byte() + 1, node.end_byte() - 1);
        let mut at = from;
        let plain = |reader: &Self, from: usize, to: usize, word: &mut Word| {
            let text = reader.source.get(from..to).unwrap_or_default();
            words::double(text, word).map_err(|what| reader.unclear(node, what))
        };
        for child in children(node) {
            let expansion = matches!(
                child.kind(),
                "expansion" | "simple_expansion" | "command_substitution" | "arithmetic_expansion"
            );
            if !expansion {
                if child.is_named() && child.kind() != "string_content" {
                    return Err(self.unclear(child, "a quote is not understood"));
                }
                continue;
            }
            plain(self, at, child.start_byte(), word)?;
            let before = word.pieces.len();
            self.pieces(child, word)?;
            let many = self.text(child).contains('@');
            for piece in &mut word.pieces[before..] {
                if !many && matches!(piece, Piece::Unknown(_)) {
                    *piece = Piece::Unknown(Words::One);
                }
            }
            at = child.end_byte();
        }
        plain(self, at, to, word)
    }

    fn simple_name(&self, node: Branch<'_>) -> Read<()> {
        let name = &self.text(node)[1..];
        let special = matches!(name, "@" | "*" | "#" | "?" | "-" | "$" | "!" | "_");
        // The shell reads `$12` as `$1` and a 2.
        let digits = name.bytes().all(|b| b.is_ascii_digit());
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if special || (digits && name.len() == 1) || (plain && !name.starts_with(|c: char| c.is_ascii_digit())) {
            return Ok(());
        }
        Err(self.unclear(node, "something is expanded in a way that is not understood"))
    }

    fn expansion(&mut self, node: Branch<'_>) -> Read<()> {
        let wrong = || self.unclear(node, "something is expanded in a way that is not understood");
        let text = self.text(node);
        let inside = text.strip_prefix("${").and_then(|text| text.strip_suffix('}')).ok_or_else(wrong)?;
        let body = inside.strip_prefix('#').filter(|rest| !rest.is_empty()).unwrap_or(inside);
        let end = body.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(body.len());
        let (name, mut rest) = if end == 0 && body.starts_with(['@', '*', '?', '#', '$', '-']) {
            body.split_at(1)
        } else {
            body.split_at(end)
        };
        if name.is_empty() {
            return Err(wrong());
        }
        for whole in ["[@]", "[*]"] {
            rest = rest.strip_prefix(whole).unwrap_or(rest);
        }
        if rest.is_empty() {
            return Ok(());
        }
        let operator =
            CUTTING.iter().filter(|operator| rest.starts_with(**operator)).max_by_key(|operator| operator.len());
        let Some(operator) = operator else { return Err(wrong()) };
        let operand = &rest[operator.len()..];
        // The operand: text without anything special, or nodes of their own.
        if operand.chars().all(|c| c.is_alphanumeric() || " ./_-*?:,+@%=~^".contains(c)) {
            return Ok(());
        }
        let quoted = operand.len() > 1 && operand.starts_with('"') && operand.ends_with('"');
        let inner: Vec<Branch<'_>> = children(node)
            .into_iter()
            .filter(|child| child.is_named() && child.start_byte() >= node.end_byte() - 1 - operand.len())
            .collect();
        match inner.as_slice() {
            [only]
                if only.byte_range() == (node.end_byte() - 1 - operand.len()..node.end_byte() - 1)
                    && (quoted || matches!(only.kind(), "simple_expansion" | "command_substitution" | "expansion")) =>
            {
                self.pieces(*only, &mut Word::default())
            }
            _ => Err(wrong()),
        }
    }

    /// `$(…)`, backticks, `<(…)`: commands in a shell of their own.
    fn substitution(&mut self, node: Branch<'_>) -> Read<()> {
        let text = self.text(node);
        if text.starts_with('`') && (text.contains('\\') || text.matches('`').count() != 2) {
            return Err(self.unclear(node, "backticks are nested"));
        }
        let parts = children(node);
        let [_, inside @ .., _] = parts.as_slice() else {
            return Err(self.unclear(node, "a substitution is not understood"));
        };
        if text.starts_with("$`") {
            return Err(self.unclear(node, "a substitution is not understood"));
        }
        let outer = std::mem::take(&mut self.inner);
        let body = if let [only] = inside
            && only.kind() == "file_redirect"
        {
            let mut items =
                vec![super::Item::new(super::Join::First, super::Body::Simple(super::Simple::default()), Vec::new())];
            self.redirect(*only, &mut items)?;
            super::joined(items)
        } else {
            self.statements(inside)?
        };
        self.inner = outer;
        self.inner.push(Node::Apart(Box::new(body)));
        Ok(())
    }

    /// Numbers only: the value of a name is evaluated again, and may run a command.
    fn arithmetic(&self, node: Branch<'_>) -> Read<()> {
        let inside = self.text(node).trim_start_matches("$((").trim_end_matches("))");
        if self.text(node).starts_with("$((") && inside.chars().all(|c| c.is_ascii_digit() || " +-*/%()".contains(c)) {
            return Ok(());
        }
        Err(self.unclear(node, "it calculates with names"))
    }
}

impl Word {
    /// Whether an unquoted `[` was read without its end, because an expansion comes in between.
    fn bare_bracket(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains('[')))
            && self.pieces.iter().any(|piece| matches!(piece, Piece::Unknown(_)))
    }
}

fn variable(text: &str, word: &Word, words: Words) -> Piece {
    if matches!(text, "$HOME" | "${HOME}") && word.pieces.iter().all(|piece| *piece == Piece::Text(String::new())) {
        return Piece::Home;
    }
    match text {
        "$?" | "$#" | "$$" | "$!" => Piece::Unknown(Words::One),
        _ => Piece::Unknown(words),
    }
}
