//! HTML as Markdown, within bounds: a page is written by strangers and may be made to be expensive.
//!
//! The converter calls itself for each level of a page, so depth is measured first, and the work has a thread with a
//! stack of its own. Deliberately absent: what a page would look like after its scripts have run.

use std::rc::Rc;
use std::time::Duration;

use htmd::{HtmlToMarkdown, Node};
use tokio::sync::oneshot;

/// Levels of a page. Browsers stop at 512.
const DEPTH: usize = 512;

/// Tags that stay open at once, as counted before anything is parsed: time grows with their square.
const OPEN: usize = 5_000;

/// A level takes some 4 KB where nothing is optimised.
const STACK: usize = 64 * 1024 * 1024;

const TIME: Duration = Duration::from_secs(10);

/// What a page says to programs only.
const SKIPPED: &[&str] = &["script", "style", "noscript", "template", "iframe", "svg", "head"];

/// Tags that never close.
const VOID: &[&str] =
    &["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"];

/// Tags that the next one of their kind closes, so that old pages leave them open.
const CLOSED_BY_THE_NEXT: &[&str] =
    &["p", "li", "dt", "dd", "option", "optgroup", "tr", "td", "th", "tbody", "thead", "tfoot"];

#[derive(Debug, thiserror::Error)]
pub(in crate::tool) enum HtmlError {
    #[error("the page is nested too deeply to be read")]
    TooDeep,
    #[error("the page could not be read within {} s", TIME.as_secs())]
    TooLong,
    #[error("the page could not be read: {0}")]
    Failed(String),
}

/// The page as Markdown.
pub(in crate::tool) async fn to_markdown(html: String) -> Result<String, HtmlError> {
    if most_open(&html) > OPEN {
        return Err(HtmlError::TooDeep);
    }
    let (sender, receiver) = oneshot::channel();
    let convert = move || {
        // Nobody listens any more when the time is up.
        let _ = sender.send(convert(&html));
    };
    let thread = std::thread::Builder::new().name("html".to_owned()).stack_size(STACK).spawn(convert);
    thread.map_err(|error| HtmlError::Failed(error.to_string()))?;
    match tokio::time::timeout(TIME, receiver).await {
        Ok(Ok(converted)) => converted,
        Ok(Err(_)) => Err(HtmlError::Failed("the converter gave up".to_owned())),
        Err(_) => Err(HtmlError::TooLong),
    }
}

fn convert(html: &str) -> Result<String, HtmlError> {
    let converter = HtmlToMarkdown::builder().skip_tags(SKIPPED.to_vec()).build();
    let tree = converter.html_to_tree(html).map_err(|error| HtmlError::Failed(error.to_string()))?;
    if is_deep(&tree) {
        return Err(HtmlError::TooDeep);
    }
    Ok(converter.tree_to_markdown(&tree))
}

/// Without calling itself, because that is what must not be done on a deep tree.
fn is_deep(tree: &Rc<Node>) -> bool {
    let mut waiting = vec![(Rc::clone(tree), 0)];
    while let Some((node, depth)) = waiting.pop() {
        if depth > DEPTH {
            return true;
        }
        waiting.extend(node.children.borrow().iter().map(|child| (Rc::clone(child), depth + 1)));
    }
    false
}

/// How many tags are open at once, by their text alone.
fn most_open(html: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for piece in html.split('<').skip(1) {
        let (closes, name) = piece.strip_prefix('/').map_or((false, piece), |name| (true, name));
        let end = name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len()).min(12);
        let name = name[..end].to_ascii_lowercase();
        if name.is_empty() || VOID.contains(&name.as_str()) || CLOSED_BY_THE_NEXT.contains(&name.as_str()) {
            continue;
        }
        open = if closes { open.saturating_sub(1) } else { open + 1 };
        most = most.max(open);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_page_becomes_markdown_without_its_scripts() {
        let html = "<html><head><title>T</title><style>p{}</style></head><body><h1>Title</h1><script>evil()</script>\
            <p>A <b>bold</b> <a href='/x'>link</a></p><ul><li>one<li>two</ul><pre><code>let x = 1;</code></pre></body></html>";
        let markdown = to_markdown(html.to_owned()).await.unwrap();
        for part in ["# Title", "**bold**", "[link](/x)", "one", "two", "let x = 1;"] {
            assert!(markdown.contains(part), "{part}: {markdown}");
        }
        assert!(!markdown.contains("evil") && !markdown.contains("p{}"), "{markdown}");
    }

    #[tokio::test]
    async fn a_page_that_is_too_deep_is_refused_and_one_that_is_deep_is_read() {
        for levels in [600, 100_000, 300_000] {
            for tag in ["div", "b", "blockquote"] {
                let html = format!("{}x", format!("<{tag}>").repeat(levels));
                let refused = to_markdown(html).await;
                assert!(matches!(refused, Err(HtmlError::TooDeep)), "{levels} {tag}: {refused:?}");
            }
        }
        let html = format!("{}deep{}", "<div>".repeat(450), "</div>".repeat(450));
        assert_eq!(to_markdown(html).await.unwrap(), "deep");
    }

    #[tokio::test]
    async fn a_long_flat_page_of_open_paragraphs_is_no_deep_one() {
        let html = "<p>x<br><li>y<td>z".repeat(20_000);
        assert!(to_markdown(html).await.unwrap().len() > 40_000);
    }

    #[test]
    fn letters_of_any_script_in_tags_are_read() {
        assert_eq!(most_open("<é><日本語><a日本><"), 1);
    }
}
