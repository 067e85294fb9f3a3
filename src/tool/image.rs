//! Pictures by their first bytes: what kind, how large, and whether it is one at all.
//!
//! The name of a file proves nothing. Deliberately absent: decoding; a picture that is broken further on is the model's
//! provider's to refuse.

use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Answer;
use crate::model::message::Image;
use crate::text;

/// More than this providers refuse.
pub(super) const BYTES: u64 = 4 * 1024 * 1024;

/// The kinds that every provider takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Png,
    Jpeg,
    Gif,
    WebP,
}

impl Kind {
    /// The kind that a file begins like.
    pub(super) fn of(start: &[u8]) -> Option<Self> {
        match start {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::WebP),
            _ => None,
        }
    }

    const fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::WebP => "image/webp",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::Gif => "GIF",
            Self::WebP => "WebP",
        }
    }

    /// Width and height, where the bytes say so.
    fn dimensions(self, bytes: &[u8]) -> Option<(u32, u32)> {
        match self {
            Self::Png => (bytes.get(12..16)? == b"IHDR").then_some((be(bytes, 16, 4)?, be(bytes, 20, 4)?)),
            Self::Gif => Some((le(bytes, 6, 2)?, le(bytes, 8, 2)?)),
            Self::Jpeg => of_jpeg(bytes),
            Self::WebP => of_webp(bytes),
        }
    }
}

/// The picture for the model, and a line about it.
pub(super) fn answer(name: &str, kind: Kind, reader: impl Read, length: u64) -> Result<Answer, Answer> {
    let large = |length: u64| {
        let size = text::count(length as usize, "byte", "bytes");
        Answer::correction(format!("`{name}` is a {} picture of {size}; at most {BYTES} bytes are shown", kind.name()))
    };
    if length > BYTES {
        return Err(large(length));
    }
    let mut bytes = Vec::new();
    let read = reader.take(BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| Answer::correction(format!("`{name}` cannot be read: {error}")))?;
    if bytes.len() as u64 > BYTES {
        return Err(large(bytes.len() as u64));
    }
    let Some((width, height)) = kind.dimensions(&bytes).filter(|(width, height)| *width > 0 && *height > 0) else {
        return Err(Answer::correction(format!("`{name}` begins like a {} picture but is none", kind.name())));
    };
    let size = text::count(bytes.len(), "byte", "bytes");
    let said = format!("`{name}` is a {} picture, {width} x {height}, {size}", kind.name());
    let image = Image { media_type: kind.media_type().to_owned(), data: STANDARD.encode(&bytes) };
    Ok(Answer { images: vec![image], ..Answer::done(said) })
}

fn be(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    bytes.get(at..at + length).map(|bytes| bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

fn le(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    bytes.get(at..at + length).map(|bytes| bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

/// From segment to segment up to the one that starts a frame.
fn of_jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        // Any number of these may fill up before a marker.
        let marker = at + bytes.get(at..)?.iter().position(|byte| *byte != 0xff)?;
        if marker == at {
            return None;
        }
        let length = be(bytes, marker + 1, 2)? as usize;
        match bytes[marker] {
            // A frame, but not the tables that have numbers among those of frames.
            0xc0..=0xcf if !matches!(bytes[marker], 0xc4 | 0xc8 | 0xcc) => {
                return Some((be(bytes, marker + 6, 2)?, be(bytes, marker + 4, 2)?));
            }
            0x01 | 0xd0..=0xd9 => return None,
            _ if length < 2 => return None,
            _ => at = marker + 1 + length,
        }
    }
}

fn of_webp(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8X" => Some((le(bytes, 24, 3)? + 1, le(bytes, 27, 3)? + 1)),
        b"VP8L" => {
            let bits = le(bytes, 21, 4)?;
            (*bytes.get(20)? == 0x2f).then_some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8 " => {
            let starts = bytes.get(23..26)? == [0x9d, 0x01, 0x2a];
            starts.then_some((le(bytes, 26, 2)? & 0x3fff, le(bytes, 28, 2)? & 0x3fff))
        }
        _ => None,
    }
}

/// A picture of each kind, by hand: only what says how large it is.
#[cfg(test)]
pub(super) fn examples() -> Vec<(Kind, Vec<u8>)> {
    let png = [&b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x02\0\0\0\x01\0"[..], &[8, 6, 0, 0, 0]].concat();
    let jpeg = [
        &b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xff\xc4\0\x03\0"[..],
        &b"\xff\xc2\0\x11\x08\x01\0\x02\0\x03\x01\x11\0\x02\x11\x01\x03\x11\x01"[..],
    ]
    .concat();
    let webp = |rest: &[u8]| [b"RIFF\x20\0\0\0WEBP", rest].concat();
    // 511 and 255 in 14 bits each.
    let bits = (511_u32 | 255 << 14).to_le_bytes();
    vec![
        (Kind::Png, png),
        (Kind::Jpeg, jpeg),
        (Kind::Gif, b"GIF89a\0\x02\0\x01\xf0\0\0".to_vec()),
        (Kind::WebP, webp(b"VP8X\x0a\0\0\0\0\0\0\0\xff\x01\0\xff\0\0")),
        (Kind::WebP, webp(&[&b"VP8L\x05\0\0\0\x2f"[..], &bits].concat())),
        (Kind::WebP, webp(b"VP8 \x0a\0\0\0\x10\x02\0\x9d\x01\x2a\0\x02\0\x01")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_tells_its_dimensions() {
        for (kind, bytes) in examples() {
            assert_eq!(Kind::of(&bytes), Some(kind));
            assert_eq!(kind.dimensions(&bytes), Some((512, 256)), "{kind:?}");
            let answer = answer("a", kind, &bytes[..], bytes.len() as u64).unwrap();
            assert_eq!(STANDARD.decode(&answer.images[0].data).unwrap(), bytes);
            assert_eq!(answer.images[0].media_type, kind.media_type());
            assert!(answer.ok && answer.text.contains("512 x 256"), "{answer:?}");
        }
    }

    #[test]
    fn a_picture_that_is_cut_anywhere_is_no_picture_and_no_panic() {
        for (kind, bytes) in examples() {
            for length in 0..bytes.len() {
                let part = &bytes[..length];
                let _ = kind.dimensions(part);
                assert!(Kind::of(part).is_none_or(|found| found == kind));
            }
            let refused = answer("a", kind, &bytes[..12], 12);
            assert!(refused.is_err() || kind == Kind::Gif, "{kind:?}");
        }
        for bytes in [&b"\xff\xd8\xff\xe0\0\0\xff\xc0"[..], b"\xff\xd8\xff\xff\xff\xff", b"\xff\xd8\xff\xda\0\x02x"] {
            assert_eq!(of_jpeg(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_picture_that_is_too_large_is_refused_by_what_was_read_not_by_what_was_said() {
        let (kind, mut bytes) = examples().remove(0);
        bytes.resize(BYTES as usize + 1, 0);
        for said in [10, BYTES + 1] {
            let refused = answer("a", kind, &bytes[..], said).unwrap_err();
            assert!(refused.text.contains("at most 4194304 bytes"), "{refused:?}");
        }
    }
}
