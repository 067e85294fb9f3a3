//! Doors for the fuzzers in `fuzz/`: bytes in, and a panic where a promise is broken.
//!
//! Compiled with `--cfg fuzzing` only. Deliberately absent: anything the product uses.

use std::path::Path;

use crate::front_matter;
use crate::machine::gate::{self, Confinement, Decision, Policy};
use crate::model::message::Message;
use crate::model::persona::Mode;
use crate::model::rule::{Rule, Subject};
use crate::model::tool_name::ToolName;
use crate::store::{persona_file, session};

/// A rule on the first line, a shell line after it.
pub fn rules(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (rule, line) = text.split_once('\n').unwrap_or((text, text));
    let subject = Subject::Command(line.to_owned());
    let judge = |mode, allow: &[Rule], deny: &[Rule]| {
        let policy = Policy { mode, allow: allow.to_vec(), deny: deny.to_vec(), confinement: Confinement::None };
        gate::judge(ToolName::Bash, &subject, &policy)
    };
    assert_ne!(judge(Mode::Default, &[], &[]), Decision::Allow, "no rule, no sandbox, and yet it may run: {line:?}");
    let all = [Rule { tool: ToolName::Bash, pattern: None }];
    for mode in [Mode::Default, Mode::Edit, Mode::Plan, Mode::Bypass] {
        let denied = matches!(judge(mode, &all, &all), Decision::Deny { .. });
        assert!(denied, "a rule denies every command, and yet: {line:?}");
    }
    let Ok(rule) = rule.parse::<Rule>() else { return };
    assert_eq!(rule.to_string().parse::<Rule>().as_ref(), Ok(&rule), "a rule is read as it was written");
    let rule = [rule];
    let allowed = judge(Mode::Default, &rule, &[]);
    assert_eq!(allowed, judge(Mode::Default, &rule, &[]), "the same question has the same answer");
    if rule[0].tool == ToolName::Bash {
        let both = judge(Mode::Default, &rule, &rule);
        assert_ne!(both, Decision::Allow, "{} denies and allows {line:?}", rule[0]);
    }
}

/// A Markdown file with a header, as a persona and as our own.
pub fn front_matter(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for dialect in [persona_file::Dialect::Decode, persona_file::Dialect::ClaudeCode] {
        let parsed = persona_file::parse(Path::new("fuzzed.md"), &text, dialect);
        if let Some((persona, prompt)) = parsed.persona {
            assert!(!persona.name.is_empty() && !prompt.trim().is_empty(), "half a persona: {text:?}");
        }
    }
    let Ok((value, body)) = front_matter::read::<std::collections::BTreeMap<String, String>>(&text) else { return };
    let written = front_matter::write(&value, body);
    let (again, rest) =
        front_matter::read::<std::collections::BTreeMap<String, String>>(&written).expect("what we wrote is read");
    assert_eq!((again, rest), (value, body), "a file is read as it was written: {text:?}");
}

/// The bytes of a session file.
pub fn session(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("there is room in memory");
    std::fs::write(file.path(), bytes).expect("there is room in memory");
    let Ok(history) = session::read(file.path()) else { return };
    let sound = session::repair(history.messages);
    let mut awaited: Vec<String> = Vec::new();
    for message in &sound {
        match message {
            Message::Tool(result) => {
                assert!(!awaited.is_empty() && awaited.remove(0) == result.call, "a result out of its place");
            }
            Message::Assistant(answer) => {
                assert!(awaited.is_empty(), "a call without a result");
                awaited = answer.calls.iter().map(|call| call.id.clone()).collect();
            }
            Message::User(_) => assert!(awaited.is_empty(), "a call without a result"),
        }
    }
    assert!(awaited.is_empty(), "a call without a result");
    assert_eq!(session::repair(sound.clone()), sound, "what is mended stays as it is");
}
