//! Redirections: files that are opened, here-documents, here-strings.
//!
//! The tree puts words after a target into the redirection; the shell takes them as words of the command, and so do we.

use tree_sitter::Node as Branch;

use super::super::syntax::{Access, Redirect, Simple, Word};
use super::super::words;
use super::{Body, Item, Join, Read, Reader, children};

impl Reader<'_> {
    /// Adds a redirection to the last item; what follows a here-document on its line becomes further items.
    pub(super) fn redirect(&mut self, node: Branch<'_>, items: &mut Vec<Item>) -> Read<()> {
        match node.kind() {
            "file_redirect" => self.file(node, items),
            "herestring_redirect" => {
                for child in children(node).into_iter().filter(Branch::is_named) {
                    if child.kind() != "file_descriptor" {
                        self.word(child)?;
                    }
                }
                self.last(node, items)?.fed = true;
                Ok(())
            }
            _ => self.here_document(node, items),
        }
    }

    /// Where redirections of the last item go.
    fn last<'i>(&mut self, node: Branch<'_>, items: &'i mut [Item]) -> Read<&'i mut Simple> {
        let Some(item) = items.last_mut() else { return Err(self.unclear(node, "a redirection stands alone")) };
        item.inner.append(&mut self.inner);
        match &mut item.body {
            Body::Simple(simple) => Ok(simple),
            Body::Compound(super::Node::Function { .. }) => Err(self.unclear(node, "a function is redirected")),
            Body::Compound(_) => Ok(&mut item.opens),
        }
    }

    /// Words that follow a target.
    fn arguments(&mut self, nodes: &[Branch<'_>], items: &mut [Item]) -> Read<()> {
        for node in nodes {
            let word = self.word(*node)?;
            self.last(*node, items)?;
            let Some(Body::Simple(simple)) = items.last_mut().map(|item| &mut item.body) else {
                return Err(self.unclear(*node, "a word after a redirection is not understood"));
            };
            if simple.words.is_empty() && (super::is_assignment(&word.shown()) || is_reserved(&word)) {
                return Err(self.unclear(*node, "a word after a redirection is not understood"));
            }
            simple.words.push(word);
        }
        Ok(())
    }

    fn file(&mut self, node: Branch<'_>, items: &mut [Item]) -> Read<()> {
        let parts = children(node);
        for pair in parts.windows(2) {
            self.same_line(pair[0], pair[1])?;
        }
        let mut operator = "";
        let mut words = Vec::new();
        for part in &parts {
            match part.kind() {
                "file_descriptor" => {}
                "comment" => self.comment(*part)?,
                _ if part.is_named() => words.push(*part),
                _ => operator = self.text(*part),
            }
        }
        let access = match operator {
            ">" | ">>" | "&>" | "&>>" | ">|" | ">&" => Access::Write,
            "<" | "<&" => Access::Read,
            "<&-" | ">&-" => return self.arguments(&words, items),
            _ => return Err(self.unclear(node, "a redirection is not understood")),
        };
        let Some((target, rest)) = words.split_first() else {
            return Err(self.unclear(node, "a redirection has no target"));
        };
        let target_node = *target;
        let target = self.word(target_node)?;
        let copies = target.known().is_some_and(|target| {
            let number = target.strip_suffix('-').unwrap_or(target);
            number.bytes().all(|b| b.is_ascii_digit())
        });
        match operator {
            ">&" | "<&" if copies => {}
            "<&" => return Err(self.unclear(node, "a redirection is not understood")),
            // `>&$X` copies a descriptor or opens a file, whatever it turns out to be.
            _ => self.last(target_node, items)?.redirects.push(Redirect { access, target }),
        }
        self.last(target_node, items)?;
        self.arguments(rest, items)
    }

    fn here_document(&mut self, node: Branch<'_>, items: &mut Vec<Item>) -> Read<()> {
        self.last(node, items)?.fed = true;
        let parts = children(node);
        let mut mark = None;
        let mut join = Join::Pipe;
        for part in &parts {
            match part.kind() {
                "file_descriptor" | "<<" | "<<-" | "\n" => {}
                "heredoc_start" => mark = Some(*part),
                "heredoc_body" => self.body(node, mark, *part)?,
                "heredoc_end" => self.ending(node, mark, *part)?,
                "file_redirect" | "herestring_redirect" => self.redirect(*part, items)?,
                "&&" => join = Join::And,
                "||" => join = Join::Or,
                "comment" => self.comment(*part)?,
                "pipeline" => {
                    for child in children(*part) {
                        match child.kind() {
                            "|" | "|&" => {}
                            _ => self.items(child, Join::Pipe, items)?,
                        }
                    }
                }
                _ if part.is_named() && join == Join::Pipe => self.arguments(&[*part], items)?,
                _ if part.is_named() => self.items(*part, join, items)?,
                _ => return Err(self.unclear(*part, "a here-document is not understood")),
            }
        }
        Ok(())
    }

    fn body(&mut self, node: Branch<'_>, mark: Option<Branch<'_>>, body: Branch<'_>) -> Read<()> {
        let mark = mark.ok_or_else(|| self.unclear(node, "a here-document has no mark"))?;
        if self.text(mark).contains(['\'', '"', '\\']) {
            return Ok(());
        }
        let mut at = body.start_byte();
        for child in children(body).into_iter().filter(|child| child.kind() != "heredoc_content") {
            self.plain_body(body, at, child.start_byte())?;
            self.pieces(child, &mut Word::default())?;
            at = child.end_byte();
        }
        self.plain_body(body, at, body.end_byte())
    }

    fn plain_body(&self, body: Branch<'_>, from: usize, to: usize) -> Read<()> {
        if words::is_plain_body(self.source.get(from..to).unwrap_or_default()) {
            return Ok(());
        }
        Err(self.unclear(body, "a here-document is not understood"))
    }

    /// Holds the end that the tree found against the lines: the first one that is the mark, and no other.
    fn ending(&mut self, node: Branch<'_>, mark: Option<Branch<'_>>, end: Branch<'_>) -> Read<()> {
        let wrong = || self.unclear(node, "a here-document does not end where it seems to");
        let mark = mark.ok_or_else(wrong)?;
        let word: String = self.text(mark).chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
        let stripped = children(node).iter().any(|part| part.kind() == "<<-");
        let first = self.source[mark.end_byte()..].find('\n').ok_or_else(wrong)? + mark.end_byte() + 1;
        let mut at = first;
        for line in self.source[first..].split_inclusive('\n') {
            let text = line.strip_suffix('\n').unwrap_or(line);
            let text = if stripped { text.trim_start_matches('\t') } else { text };
            if text == word {
                let expected = at..at + line.trim_end_matches('\n').len();
                let found = end.byte_range();
                // What opened on the same line would have its own body first.
                let opened = self.source[node.start_byte()..first].matches("<<").count();
                let before = &self.source
                    [self.source[..node.start_byte()].rfind('\n').map_or(0, |at| at + 1)..node.start_byte()];
                return if opened == 1
                    && !before.contains("<<")
                    && found.end == expected.end
                    && found.start >= expected.start
                {
                    Ok(())
                } else {
                    Err(wrong())
                };
            }
            at += line.len();
        }
        Err(wrong())
    }
}

fn is_reserved(word: &Word) -> bool {
    word.bare && word.known().is_some_and(|word| super::RESERVED.contains(&word))
}
