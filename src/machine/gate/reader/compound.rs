//! Commands made of commands: groups, conditions, loops, cases, functions, tests.

use tree_sitter::Node as Branch;

use super::super::syntax::{Node, Redirect, Simple, Word};
use super::{Read, Reader, children};

/// Names that a function must not take: the gate knows what they mean.
const TAKEN: &[&str] = &[
    ".", ":", "[", "break", "builtin", "cd", "command", "continue", "echo", "env", "eval", "exec", "exit", "export",
    "false", "popd", "printf", "pushd", "pwd", "return", "set", "source", "test", "true", "unset", "wait",
];

/// What `[ … ]` may hold between its words.
const TESTING: &[&str] = &["[", "]", "!", "=", "==", "!="];

impl Reader<'_> {
    pub(super) fn compound(&mut self, node: Branch<'_>) -> Read<Node> {
        let parts = children(node);
        match node.kind() {
            "subshell" => match parts.as_slice() {
                [open, inside @ .., close] if open.kind() == "(" && close.kind() == ")" => {
                    Ok(Node::Apart(Box::new(self.statements(inside)?)))
                }
                _ => Err(self.unclear(node, "parentheses are not understood")),
            },
            "compound_statement" => match parts.as_slice() {
                [open, inside @ .., close] if open.kind() == "{" && close.kind() == "}" => self.statements(inside),
                _ => Err(self.unclear(node, "it calculates")),
            },
            "do_group" => match parts.as_slice() {
                [open, inside @ .., close] if open.kind() == "do" && close.kind() == "done" => self.statements(inside),
                _ => Err(self.unclear(node, "a loop is not understood")),
            },
            "if_statement" => self.condition(node, &parts),
            "while_statement" => self.while_loop(node, &parts),
            "for_statement" => self.for_loop(node, &parts),
            "case_statement" => self.cases(&parts),
            "function_definition" => self.function(node, &parts),
            _ => Err(self.unclear(node, "its grammar is not understood")),
        }
    }

    /// `if`, with the same shape below it for `elif`.
    fn condition(&mut self, node: Branch<'_>, parts: &[Branch<'_>]) -> Read<Node> {
        let wrong = || self.unclear(node, "a condition is not understood");
        let then = parts.iter().position(|part| part.kind() == "then").ok_or_else(wrong)?;
        let rest = &parts[then + 1..];
        let end = rest
            .iter()
            .position(|part| matches!(part.kind(), "elif_clause" | "else_clause" | "fi"))
            .unwrap_or(rest.len());
        let condition = self.statements(&parts[1..then])?;
        let body = self.statements(&rest[..end])?;
        let mut other = Node::Sequence(Vec::new());
        for clause in rest[end..].iter().rev() {
            let inside = children(*clause);
            other = match clause.kind() {
                "fi" => continue,
                "else_clause" => self.statements(&inside[1..])?,
                "elif_clause" => {
                    let Node::If { condition, then, .. } = self.condition(*clause, &inside)? else {
                        return Err(self.unclear(*clause, "a condition is not understood"));
                    };
                    Node::If { condition, then, other: Box::new(other) }
                }
                "comment" => continue,
                _ => return Err(self.unclear(*clause, "a condition is not understood")),
            };
        }
        Ok(Node::If { condition: Box::new(condition), then: Box::new(body), other: Box::new(other) })
    }

    fn while_loop(&mut self, node: Branch<'_>, parts: &[Branch<'_>]) -> Read<Node> {
        let [_, condition @ .., body] = parts else { return Err(self.unclear(node, "a loop is not understood")) };
        let condition = self.statements(condition)?;
        let body = self.compound(*body)?;
        Ok(Node::Loop(Box::new(Node::Sequence(vec![condition, body]))))
    }

    /// The variable of a loop is set, like one of an assignment.
    fn for_loop(&mut self, node: Branch<'_>, parts: &[Branch<'_>]) -> Read<Node> {
        let mut simple = Simple { text: super::near(self.text(node)), ..Simple::default() };
        let mut sequence = Vec::new();
        let mut before: Option<Branch<'_>> = None;
        for part in parts {
            match part.kind() {
                "for" | "in" | ";" | "\n" => {}
                "comment" => self.comment(*part)?,
                "variable_name" if simple.assignments.is_empty() => {
                    simple
                        .assignments
                        .push(super::Assignment { name: self.text(*part).to_owned(), value: Word::unknown() });
                }
                "do_group" => {
                    sequence.append(&mut self.inner);
                    sequence.push(Node::Command(std::mem::take(&mut simple)));
                    let body = self.compound(*part)?;
                    sequence.push(Node::Loop(Box::new(body)));
                }
                _ if part.is_named() => {
                    if let Some(before) = before {
                        self.same_line(before, *part)?;
                    }
                    self.word(*part)?;
                }
                _ => return Err(self.unclear(*part, "a loop is not understood")),
            }
            before = Some(*part);
        }
        Ok(Node::Sequence(sequence))
    }

    fn cases(&mut self, parts: &[Branch<'_>]) -> Read<Node> {
        let mut cases = Vec::new();
        let mut sequence = Vec::new();
        for part in parts {
            match part.kind() {
                "case" | "in" | "esac" | "\n" => {}
                "comment" => self.comment(*part)?,
                "case_item" => {
                    let inside = children(*part);
                    let close = inside.iter().position(|part| part.kind() == ")");
                    let close = close.ok_or_else(|| self.unclear(*part, "a case is not understood"))?;
                    for pattern in &inside[..close] {
                        self.case_pattern(*pattern)?;
                    }
                    sequence.append(&mut self.inner);
                    let rest = &inside[close + 1..];
                    let ends = rest.last().is_some_and(|last| matches!(last.kind(), ";;" | ";&" | ";;&"));
                    let body = self.statements(if ends { &rest[..rest.len() - 1] } else { rest })?;
                    cases.push(body);
                }
                _ if part.is_named() => {
                    self.word(*part)?;
                    sequence.append(&mut self.inner);
                }
                _ => return Err(self.unclear(*part, "a case is not understood")),
            }
        }
        sequence.push(Node::Cases(cases));
        Ok(Node::Sequence(sequence))
    }

    fn case_pattern(&mut self, node: Branch<'_>) -> Read<()> {
        match node.kind() {
            "(" | "|" => Ok(()),
            "extglob_pattern" | "regex" | "word" | "number" => {
                let plain = |c: char| c.is_alphanumeric() || " ._-*?/:+=@%,[]!^~".contains(c);
                if self.text(node).chars().all(plain) {
                    return Ok(());
                }
                Err(self.unclear(node, "a pattern is not understood"))
            }
            _ => self.pieces(node, &mut Word::default()),
        }
    }

    fn function(&mut self, node: Branch<'_>, parts: &[Branch<'_>]) -> Read<Node> {
        let mut name = "";
        let mut body = None;
        for part in parts {
            match part.kind() {
                "function" | "(" | ")" => {}
                "word" if body.is_none() && name.is_empty() => name = self.text(*part),
                "compound_statement" | "subshell" | "if_statement" if body.is_none() => {
                    body = Some(self.compound(*part)?);
                }
                _ => return Err(self.unclear(node, "a function is not understood")),
            }
        }
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        match body {
            Some(body) if plain && !TAKEN.contains(&name) && !super::RESERVED.contains(&name) => {
                Ok(Node::Function { name: name.to_owned(), body: Box::new(body) })
            }
            Some(_) | None => Err(self.unclear(node, "a function is not understood")),
        }
    }

    /// `[ … ]` and `[[ … ]]`: nothing of it runs but its substitutions.
    pub(super) fn test(&mut self, whole: Branch<'_>, node: Branch<'_>) -> Read<Vec<Word>> {
        let double = self.text(whole).starts_with("[[");
        let mut stack = vec![node];
        let mut words = Vec::new();
        while let Some(node) = stack.pop() {
            let text = self.text(node);
            if matches!(text, "-v" | "-R") {
                return Err(self.unclear(node, "a test is not understood"));
            }
            match node.kind() {
                "binary_expression" | "unary_expression" | "parenthesized_expression" => {
                    let calculates = children(node)
                        .iter()
                        .any(|part| matches!(self.text(*part), "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge"));
                    let numbers = |part: &Branch<'_>| {
                        let text = self.text(*part).trim_matches('"');
                        matches!(text, "$?" | "$#" | "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge")
                            || text.bytes().all(|b| b.is_ascii_digit())
                    };
                    // `[[ a[$(x)] -eq 1 ]]` runs x.
                    if double && calculates && !children(node).iter().all(numbers) {
                        return Err(self.unclear(node, "it calculates with names"));
                    }
                    stack.extend(children(node).into_iter().rev());
                }
                "test_operator" => words.push(self.token(node)?),
                "[[" | "]]" | "&&" | "||" | "(" | ")" | "<" | ">" | "=~" if double => {}
                "regex" | "extglob_pattern" if double => {
                    if text.contains(['`', '(', ')', '"', '\'']) || text.contains("${") {
                        return Err(self.unclear(node, "a pattern is not understood"));
                    }
                }
                kind if TESTING.contains(&kind) => words.push(self.token(node)?),
                _ if node.is_named() => words.push(self.word(node)?),
                _ => return Err(self.unclear(node, "a test is not understood")),
            }
        }
        if words.is_empty() && node.kind() == "[[" {
            words.push(Word::literal("[["));
        }
        Ok(words)
    }
}

impl Redirect {
    /// Whether it opens nothing that lasts.
    pub(in super::super) fn is_void(&self) -> bool {
        matches!(self.target.known(), Some("/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/stdin"))
            || matches!(self.target.pieces.as_slice(), [super::Piece::Pipe])
    }
}
