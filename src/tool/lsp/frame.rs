//! Messages of the language server protocol between bytes and JSON: a length, an empty line, a body.
//!
//! A server may be anything, so every length has a bound. Deliberately absent: what a message means.

use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// Of all header lines together.
const HEADER: usize = 4 * 1024;

/// Answers with thousands of places have some megabytes.
const BODY: usize = 16 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error("it closed its output")]
    Closed,
    #[error("its output cannot be read: {0}")]
    Read(#[from] std::io::Error),
    #[error("it wrote a header of more than {HEADER} bytes")]
    LongHeader,
    #[error("it wrote `{0}` where the length of a message belongs")]
    NoLength(String),
    #[error("it announced a message of {0} bytes; at most {BODY} are taken")]
    LongBody(usize),
    #[error("it wrote a message that is no JSON object: {0}")]
    NoObject(String),
}

pub(super) fn encode(message: &Value) -> Vec<u8> {
    let body = message.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The next message.
pub(super) async fn decode(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<Value, FrameError> {
    let length = header(reader).await?;
    if length > BODY {
        return Err(FrameError::LongBody(length));
    }
    let mut body = Vec::new();
    // Grows with what comes, not with what was announced.
    if reader.take(length as u64).read_to_end(&mut body).await? < length {
        return Err(FrameError::Closed);
    }
    match serde_json::from_slice(&body) {
        Ok(object @ Value::Object(_)) => Ok(object),
        Ok(_) => Err(FrameError::NoObject(crate::text::one_line(&String::from_utf8_lossy(&body), 80))),
        Err(error) => Err(FrameError::NoObject(error.to_string())),
    }
}

async fn header(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<usize, FrameError> {
    let (mut length, mut room) = (None, HEADER);
    loop {
        let mut line = Vec::new();
        let read = (&mut *reader).take(room as u64).read_until(b'\n', &mut line).await?;
        if !line.ends_with(b"\n") {
            return Err(if read == room { FrameError::LongHeader } else { FrameError::Closed });
        }
        room -= read;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        let wrong = || FrameError::NoLength(crate::text::one_line(text, 80));
        if text.is_empty() {
            return length.ok_or_else(wrong);
        }
        let (name, value) = text.split_once(':').ok_or_else(wrong)?;
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse().map_err(|_| wrong())?);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn messages_are_read_back_one_after_the_other() {
        let messages = [json!({"id": 1, "text": "é🙂"}), json!({})];
        let mut bytes: Vec<u8> = messages.iter().flat_map(encode).collect();
        bytes.extend_from_slice(b"content-length:2\nContent-Type: x\n\n{}");
        let mut reader = &bytes[..];
        for message in messages.iter().chain([&json!({})]) {
            assert_eq!(&decode(&mut reader).await.unwrap(), message);
        }
        assert!(matches!(decode(&mut reader).await, Err(FrameError::Closed)));
    }

    #[tokio::test]
    async fn what_is_no_message_is_an_error_that_says_what_it_was() {
        for (bytes, says) in [
            (b"hello\n".to_vec(), "`hello`"),
            (b"\r\n".to_vec(), "where the length"),
            (b"Content-Length: x\r\n\r\n".to_vec(), "`Content-Length: x`"),
            (b"Content-Length: -1\r\n\r\n".to_vec(), "`Content-Length: -1`"),
            (b"Content-Length: 99999999999999\r\n\r\n".to_vec(), "99999999999999 bytes"),
            (b"Content-Length: 99999999999999999999999\r\n\r\n".to_vec(), "where the length"),
            (b"Content-Length: 10\r\n\r\n{}".to_vec(), "closed"),
            (b"Content-Length: 2\r\n\r\n[]".to_vec(), "no JSON object"),
            (b"Content-Length: 2\r\n\r\n{x".to_vec(), "no JSON object"),
            (vec![b'x'; 10_000], "more than 4096"),
            (b"X: y\r\n".repeat(2_000), "more than 4096"),
            (b"Content-Le".to_vec(), "closed"),
        ] {
            let error = decode(&mut &bytes[..]).await.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
