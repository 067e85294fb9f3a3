//! Long conversations, and the end that somebody wants now: room in the window, room in the time.

use super::*;
use crate::agent::Command;

const SUMMARY: &str = "## Goal\nmend it\n## Next steps\nread on";

/// A model with a small window that reads one long file after the other in a single turn.
fn reader(reads: usize, window_tokens: u64) -> World {
    talker("", reads, window_tokens)
}

/// The same, saying so much with each call that to leave out results is not enough.
const MUCH: &str = "I look at the next file, because what I have seen so far does not explain it. ";

fn talker(says: &'static str, reads: usize, window_tokens: u64) -> World {
    let says: &'static str = Box::leak(says.repeat(8).into_boxed_str());
    let ids: Vec<&'static str> = (0..reads).map(|id| &*Box::leak(id.to_string().into_boxed_str())).collect();
    let read = |id| {
        let call = Call(id, "read", json!({"path": "big"}));
        if says.is_empty() { vec![call] } else { vec![Say(says), call] }
    };
    let mut answers: Vec<Vec<Step>> = ids.into_iter().map(read).collect();
    answers.push(vec![Say("done")]);
    let mut world = World::new(answers);
    world.window_tokens = window_tokens;
    std::fs::write(world.directory.path().join("tree/big"), "x".repeat(2_000)).unwrap();
    world
}

fn summaries(world: &World, steps: Vec<Vec<Step>>) {
    *world.model.summaries.lock().unwrap() = steps.into();
}

fn size(request: &Request) -> usize {
    request.messages.iter().map(crate::agent::context::bytes_of).sum()
}

fn texts(request: &Request) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::User(user) => Some(format!("{}: {}", user.by, user.text)),
        Message::Assistant(_) | Message::Tool(_) => None,
    };
    request.messages.iter().filter_map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn old_results_are_left_out_first_and_requests_begin_alike() {
    let mut world = reader(30, 8_000);
    assert_eq!(world.run().await.exit, 0);
    let asked = world.asked();
    assert!(world.model.summed.lock().unwrap().is_empty(), "leaving out was enough");
    assert!(asked.iter().all(|request| size(request) < 4 * 8_000), "all fit the window");
    assert!(asked.iter().all(|request| request.system == asked[0].system && request.tools == asked[0].tools));
    // A request that begins like the one before costs a tenth.
    let alike = asked.windows(2).filter(|pair| pair[1].messages.starts_with(&pair[0].messages)).count();
    assert!(alike > asked.len() / 2, "{alike} of {}", asked.len());
    let history = session::read(&world.dir().session()).unwrap();
    assert!(history.messages.iter().filter_map(output).all(|output| output.len() == 2_000), "the file has all");
}

#[tokio::test(start_paused = true)]
async fn what_still_does_not_fit_is_summed_up_within_the_turn_and_counted() {
    let mut world = talker(MUCH, 60, 3_000);
    summaries(&world, (0..20).map(|_| vec![Say(SUMMARY)]).collect());
    let ended = world.run().await;
    assert_eq!((ended.exit, ended.report.body.as_str()), (0, "done"));
    let (asked, summed) = (world.asked(), world.model.summed.lock().unwrap().clone());
    assert!(!summed.is_empty());
    for request in &summed {
        assert!(request.tools.is_empty() && size(request) < 4 * 3_000, "{}", size(request));
        assert!(texts(request)[0].contains("[task]\nlook at the auth code"), "{:?}", texts(request));
    }
    let last = texts(asked.last().unwrap());
    assert_eq!(last[0], "task: look at the auth code", "the task stays word for word");
    assert!(last[1].starts_with("summary: ") && last[1].ends_with(SUMMARY), "{last:?}");
    assert!(asked.iter().all(|request| size(request) < 4 * 3_000 + 2_000));
    assert_eq!(ended.report.usage.requests as usize, asked.len() + summed.len(), "summaries are paid for");
    assert_eq!(ended.report.tool_calls, 60);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_session_goes_on_from_the_summary_and_the_transcript_keeps_all() {
    let mut world = talker(MUCH, 60, 3_000);
    summaries(&world, (0..20).map(|_| vec![Say(SUMMARY)]).collect());
    world.run().await;
    let last = world.asked().last().unwrap().messages.clone();
    let transcript = std::fs::read_to_string(world.dir().session()).unwrap();
    let calls = transcript.lines().filter(|line| line.contains("\"type\":\"tool\"") && !line.contains("compacted"));
    assert_eq!(calls.count(), 60);

    world.brief.attempt = 2;
    world.brief.start = Start::Continued(1, "more, please".into());
    world.make_dir(2);
    world.typed_end = None;
    world.script(vec![vec![Say("second")]]);
    let before = world.asked().len();
    let ended = world.run().await;
    let asked = world.asked();
    let messages = &asked[before].messages;
    // The tail holds what was left out of requests meanwhile, so that lengths compare and not every byte.
    assert_eq!(messages.len(), last.len() + 2);
    assert_eq!(messages[..2], last[..2]);
    assert_eq!(texts(&asked[before]).last().unwrap(), "person: more, please");
    assert_eq!(ended.report.body, "second");
    let copied = std::fs::read_to_string(world.dir().session()).unwrap();
    assert!(copied.lines().count() > transcript.lines().count(), "each directory is whole");
}

#[tokio::test(start_paused = true)]
async fn a_summary_that_fails_breaks_nothing() {
    let failing = || vec![Fail(ProviderError::Server { retry_after_s: None, detail: "busy".into() })];
    let mut world = talker(MUCH, 30, 3_000);
    summaries(&world, (0..30).map(|_| failing()).collect());
    let ended = world.run().await;
    assert_eq!((ended.exit, ended.report.body.as_str(), ended.report.tool_calls), (0, "done", 30));
    let tries = world.model.summed.lock().unwrap().len();
    assert!((1..=8).contains(&tries), "{tries} tries in 30 turns");
    assert!(world.log().contains("could not be summed up: the provider failed: busy"), "{}", world.log());
    assert!(session::read(&world.dir().session()).unwrap().messages.len() > 60);
}

#[tokio::test(start_paused = true)]
async fn half_a_summary_is_not_used_and_is_paid_for() {
    let mut world = talker(MUCH, 40, 3_000);
    summaries(
        &world,
        vec![
            vec![Say("## Go"), Stop(StopReason::Length)],
            vec![Say("## Go"), Fail(ProviderError::Interrupted { detail: "gone".into() })],
            vec![Say(SUMMARY)],
        ],
    );
    let ended = world.run().await;
    assert_eq!(ended.exit, 0);
    let summed = world.model.summed.lock().unwrap().len();
    assert!(summed >= 2);
    assert_eq!(ended.report.usage.requests as usize, world.asked().len() + summed);
    let half = world.asked().iter().flat_map(texts).any(|text| text.ends_with("## Go"));
    assert!(!half);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_the_model_finds_too_long_is_shortened_and_sent_once_more() {
    let too_long = || vec![Fail(ProviderError::TooLong { detail: "16k".into() })];
    // Much said and little read: only a summary helps.
    let long: &'static str = Box::leak("words ".repeat(4_000).into_boxed_str());
    let mut world = World::new(vec![
        vec![Say(long), read_a("1")],
        vec![Say(long), read_a("2")],
        vec![Say(long), read_a("3")],
        too_long(),
        vec![Say("done")],
    ]);
    summaries(&world, vec![vec![Say(SUMMARY)]]);
    assert_eq!(world.run().await.report.body, "done");
    let asked = world.asked();
    assert!(size(&asked[4]) * 2 < size(&asked[3]), "{} {}", size(&asked[3]), size(&asked[4]));

    let mut world = World::new(vec![vec![Say(long), read_a("1")], too_long(), too_long(), vec![Say("never")]]);
    summaries(&world, vec![vec![Say(SUMMARY)]]);
    let ended = world.run().await;
    assert_eq!((ended.exit, world.asked().len()), (5, 3), "twice is enough");
}

#[tokio::test(start_paused = true)]
async fn a_person_has_the_conversation_summed_up_when_they_want() {
    let mut world = reader(12, 200_000);
    world.until = Until::Quit;
    let long = "y".repeat(90_000);
    std::fs::write(world.directory.path().join("tree/big"), long).unwrap();
    summaries(&world, vec![vec![Say(SUMMARY)]]);
    world.model.answers.lock().unwrap().push_back(vec![Say("after")]);
    let compact = || Typed::Command(Command::Compact);
    let person = world.person(vec![
        (When::Idle(1), compact()),
        (When::Idle(1), line("go on")),
        (When::Idle(2), Typed::Command(Command::Quit)),
    ]);
    let ended = world.run().await;
    person.await.unwrap();
    assert_eq!((world.model.summed.lock().unwrap().len(), ended.report.body.as_str()), (1, "after"));
    let last = texts(world.asked().last().unwrap());
    assert!(last[1].starts_with("summary: "), "{last:?}");
    assert!(world.log().contains("messages summed up: about"), "{}", world.log());
}

#[tokio::test(start_paused = true)]
async fn a_signal_cuts_a_summary_and_leaves_the_conversation_as_it_was() {
    let mut world = talker(MUCH, 30, 3_000);
    let sender = world.interrupt.clone();
    let stop = move || sender.send(Interrupt::Terminate).map(drop).unwrap();
    summaries(&world, vec![vec![Say("## Go"), Do(Box::new(stop)), Hang]]);
    let ended = world.run().await;
    assert_eq!((ended.exit, ended.report.outcome), (143, Outcome::Cancelled));
    assert_eq!(ended.report.usage.requests as usize, world.asked().len() + 1);
    assert!(!std::fs::read_to_string(world.dir().session()).unwrap().contains("compacted"));
}

#[tokio::test(start_paused = true)]
async fn instructions_of_a_directory_come_with_the_first_file_read_beneath_it() {
    let read = |id: &'static str, path: &str| Call(id, "read", json!({"path": path}));
    let mut world = World::new(vec![
        vec![read("1", "sub/x.rs")],
        vec![read("2", "sub/x.rs"), read("3", "a.rs")],
        vec![Say("done")],
    ]);
    let tree = world.directory.path().join("tree");
    std::fs::create_dir(tree.join("sub")).unwrap();
    std::fs::write(tree.join("sub/x.rs"), "fn x() {}\n").unwrap();
    std::fs::write(tree.join("sub/AGENTS.md"), "Name things once.").unwrap();
    world.run().await;
    let asked = world.asked();
    let outputs: Vec<&str> = asked[2].messages.iter().filter_map(output).collect();
    assert!(outputs[0].starts_with("fn x() {}\n\n\n[Instructions of sub/AGENTS.md]"), "{outputs:?}");
    assert!(outputs[0].ends_with("Name things once."), "{outputs:?}");
    assert_eq!(outputs[1..], ["fn x() {}\n", "fn a() {}\n"]);
}

#[tokio::test(start_paused = true)]
async fn thinking_is_kept_with_the_calls_that_followed_from_it() {
    let mut world = World::new(vec![vec![Step::Think("first "), Step::Think("a.rs"), read_a("1")], vec![Say("done")]]);
    world.run().await;
    let asked = world.asked();
    let Message::Assistant(answer) = &asked[1].messages[1] else { panic!() };
    assert_eq!(answer.thinking.iter().map(|thinking| thinking.text.as_str()).collect::<Vec<_>>(), ["first ", "a.rs"]);
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_the_report_cuts_a_stream_that_stands_still_and_gives_the_report_its_time() {
    let mut world = World::new(vec![]);
    let wish = world.letter(Asked::WrapUp, "");
    world.script(vec![
        vec![Say("I have seen a"), read_a("1")],
        vec![Say("half of an ans"), Do(Box::new(wish)), Hang],
        vec![Say("the report")],
    ]);
    let started = clock().mono_ms;
    let ended = world.run().await;
    assert!(clock().mono_ms - started < 3_000, "{}", clock().mono_ms - started);
    assert_eq!((ended.exit, ended.report.outcome, ended.report.body.as_str()), (4, Outcome::Limit, "the report"));
    assert!(world.asked()[2].tools.is_empty());
    assert!(world.log().contains("-- cut: the report is wanted now"), "{}", world.log());
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_the_report_ends_the_tool_that_runs_and_keeps_what_it_has() {
    let mut world = World::new(vec![
        vec![Call("1", "bash", json!({"command": "sleep 999"})), Call("2", "write", json!({"path": "b.rs"}))],
        vec![Say("the report")],
    ]);
    let (wish, seen) = (world.letter(Asked::WrapUp, ""), Arc::clone(&world.seen));
    let outside = tokio::spawn(async move {
        tool_started(&seen).await;
        wish();
    });
    let ended = world.run().await;
    outside.await.unwrap();
    let asked = world.asked();
    let outputs: Vec<&str> = asked[1].messages.iter().filter_map(output).collect();
    assert_eq!(outputs, ["partial output", "not run: the turn was cut before it"]);
    assert_eq!((ended.exit, ended.report.body.as_str()), (4, "the report"));
}

#[tokio::test(start_paused = true)]
async fn a_report_that_is_wanted_now_does_not_wait_for_a_provider_that_asks_for_minutes() {
    let mut world = World::new(vec![]);
    let wish = world.letter(Asked::WrapUp, "");
    let limited = || Fail(ProviderError::RateLimited { retry_after_s: Some(60.0), detail: "slow".into() });
    world.script(vec![
        vec![Say("I have seen a"), read_a("1"), Do(Box::new(wish))],
        vec![limited()],
        vec![Say("never")],
    ]);
    let started = clock().mono_ms;
    let ended = world.run().await;
    assert!(clock().mono_ms - started < 3_000);
    assert_eq!((ended.exit, ended.report.outcome, ended.report.body.as_str()), (4, Outcome::Limit, "I have seen a"));
}
