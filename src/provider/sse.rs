//! Server-sent events: the bytes of a body as the data of its events, whatever pieces they come in.
//!
//! Bytes become text only when an event is whole, so that no character is cut. An event and a body have a largest size:
//! a server that never ends a line must not fill the memory. Names of events are not told, because what the dialects
//! need stands in the data too. Deliberately absent: what an event means, and waiting for it.

/// The most that one event may hold. A whole file in the arguments of a call fits many times.
const EVENT_LIMIT: usize = 16 * 1024 * 1024;
/// The most that one answer may hold, with all that frames it.
const BODY_LIMIT: usize = 256 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SseError {
    #[error("an event is larger than {} MB", EVENT_LIMIT / 1024 / 1024)]
    Event,
    #[error("the answer is larger than {} MB", BODY_LIMIT / 1024 / 1024)]
    Body,
    #[error("an event is not UTF-8")]
    Text,
}

/// Takes bytes in and gives events out.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    line: Vec<u8>,
    data: Vec<u8>,
    /// Whether the event has a line of data; an event without one is none.
    has_data: bool,
    /// The last byte was CR: a LF that follows belongs to it.
    after_cr: bool,
    heard: usize,
}

impl Decoder {
    /// The data of each event that these bytes end.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Result<Vec<String>, SseError> {
        self.heard = self.heard.saturating_add(bytes.len());
        if self.heard > BODY_LIMIT {
            return Err(SseError::Body);
        }
        let mut events = Vec::new();
        let mut rest = bytes;
        if self.after_cr && rest.first() == Some(&b'\n') {
            rest = &rest[1..];
        }
        if !bytes.is_empty() {
            self.after_cr = false;
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            self.keep(&rest[..end])?;
            let cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if cr && rest.first() == Some(&b'\n') {
                rest = &rest[1..];
            } else {
                self.after_cr = cr && rest.is_empty();
            }
            events.extend(self.end_line()?);
        }
        self.keep(rest)?;
        Ok(events)
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), SseError> {
        if self.line.len() + self.data.len() + part.len() > EVENT_LIMIT {
            return Err(SseError::Event);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// Takes the line that has just ended; an empty one ends the event.
    fn end_line(&mut self) -> Result<Option<String>, SseError> {
        if self.line.is_empty() {
            let (data, has_data) = (std::mem::take(&mut self.data), std::mem::take(&mut self.has_data));
            let text = String::from_utf8(data).map_err(|_| SseError::Text)?;
            return Ok(Some(text.trim().to_owned()).filter(|text| has_data && !text.is_empty()));
        }
        // `event:`, `id:`, `retry:` and comments are skipped.
        if let Some(part) = self.line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(part.strip_prefix(b" ").unwrap_or(part));
            self.has_data = true;
        }
        self.line.clear();
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str, size: usize) -> Vec<String> {
        let mut decoder = Decoder::default();
        text.as_bytes().chunks(size).flat_map(|piece| decoder.hear(piece).unwrap()).collect()
    }

    #[test]
    fn events_are_the_same_in_whatever_pieces_they_come() {
        let text = ": ping\n\nevent: a\ndata: 日本語🙂é\ndata:two\n\ndata\n\nid: 7\n\ndata: {}\n\ndata: torn";
        for text in [text.to_owned(), text.replace('\n', "\r\n"), text.replace('\n', "\r")] {
            for size in 1..text.len() {
                assert_eq!(heard(&text, size), ["日本語🙂é\ntwo", "{}"], "{size} of {text:?}");
            }
        }
    }

    #[test]
    fn an_event_that_never_ends_is_given_up() {
        let mut decoder = Decoder::default();
        let piece = vec![b'x'; 1024 * 1024];
        let results: Vec<_> = (0..=16).map(|_| decoder.hear(&piece)).collect();
        assert_eq!(results.last(), Some(&Err(SseError::Event)));
        assert!(results[..16].iter().all(Result::is_ok));
        let mut decoder = Decoder::default();
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        assert!((0..=16).any(|_| decoder.hear(&line) == Err(SseError::Event)), "many lines of one event");
    }

    #[test]
    fn bytes_that_are_no_text_are_an_error_and_not_a_replacement_character() {
        assert_eq!(Decoder::default().hear(b"data: \xff\xfe\n\n"), Err(SseError::Text));
    }
}
