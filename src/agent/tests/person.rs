//! A session with a person at its line: it waits for them, and does what they tell the loop itself.

use super::When::{Idle, Tool};
use super::*;
use crate::agent::Command;

fn command(command: Command) -> Typed {
    Typed::Command(command)
}

fn session(answers: Vec<Vec<Step>>) -> World {
    let mut world = World::new(answers);
    world.until = Until::Quit;
    world
}

fn persona(name: &str, tools: &[ToolName], mode: Mode) -> Persona {
    let brief = a_brief("/w");
    Persona { name: name.into(), tools: tools.to_vec(), mode, ..brief.spec.persona }
}

fn offered(request: &Request) -> Vec<&'static str> {
    request.tools.iter().map(|tool| tool.name).collect()
}

fn nows(world: &World) -> Vec<(String, Mode, String)> {
    let now = |event| match event {
        AgentEvent::Now { agent, mode, model } => Some((agent, mode, model)),
        _ => None,
    };
    world.events().into_iter().filter_map(now).collect()
}

#[tokio::test(start_paused = true)]
async fn after_an_answer_it_waits_for_the_next_line_without_a_clock_and_ends_when_told() {
    let mut world = session(vec![vec![Say("one")], vec![read_a("1")], vec![Say("two")]]);
    world.brief.grant.time_s = Some(30);
    let status = world.dir().status();
    let (typed, seen) = (world.typed.clone(), Arc::clone(&world.seen));
    let person = tokio::spawn(async move {
        seen.until(Idle(1)).await;
        // Nobody says anything for an hour, and the supervisor hears that it lives.
        let held = || front_matter_of(&status).phase == Phase::Held;
        let before = front_matter_of(&status).heartbeat;
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert!(held() && front_matter_of(&status).heartbeat.since_s(before) > 3_500.0);
        typed.send(line("and then?")).await.unwrap();
        seen.until(Idle(2)).await;
        typed.send(command(Command::Quit)).await.unwrap();
    });
    let ended = world.run().await;
    person.await.unwrap();
    assert_eq!((ended.exit, ended.report.outcome, ended.report.body.as_str()), (0, Outcome::Done, "two"));
    assert_eq!(world.last_told(1), "person pts/3: and then?");
    assert_eq!((ended.report.co_driven, ended.report.usage.requests), (1, 3));
    let used = world.events().into_iter().filter(|event| matches!(event, AgentEvent::Used { .. })).count();
    assert_eq!(used, 3);
}

fn front_matter_of(path: &std::path::Path) -> Status {
    crate::front_matter::read(&std::fs::read_to_string(path).unwrap()).unwrap().0
}

#[tokio::test(start_paused = true)]
async fn a_session_without_a_task_waits_for_the_first_line() {
    let mut world = session(vec![vec![Say("hello")]]);
    world.brief.spec.prompt = String::new();
    let person = world.person(vec![(Idle(1), line("hi")), (Idle(2), command(Command::Quit))]);
    let ended = world.run().await;
    person.await.unwrap();
    assert_eq!(world.last_told(0), "person pts/3: hi");
    assert_eq!((world.asked().len(), ended.report.body.as_str()), (1, "hello"));
}

#[tokio::test(start_paused = true)]
async fn a_letter_is_a_line_too_while_it_waits() {
    let mut world = session(vec![vec![Say("one")], vec![Say("two")]]);
    let (steer, seen, typed) = (world.letter(Asked::FollowUp, "more"), Arc::clone(&world.seen), world.typed.clone());
    let outside = tokio::spawn(async move {
        seen.until(Idle(1)).await;
        steer();
        seen.until(Idle(2)).await;
        typed.send(command(Command::Quit)).await.unwrap();
    });
    let ended = world.run().await;
    outside.await.unwrap();
    assert_eq!((world.last_told(1).as_str(), ended.report.body.as_str()), ("supervisor: more", "two"));
}

#[tokio::test(start_paused = true)]
async fn a_signal_or_a_screen_that_goes_ends_a_waiting_session_with_its_last_answer() {
    let mut world = session(vec![vec![Say("one")]]);
    let (sender, seen) = (world.interrupt.clone(), Arc::clone(&world.seen));
    let outside = tokio::spawn(async move {
        seen.until(Idle(1)).await;
        sender.send(Interrupt::Terminate).unwrap();
    });
    let ended = world.run().await;
    outside.await.unwrap();
    assert_eq!((ended.exit, ended.report.outcome, ended.report.body.as_str()), (0, Outcome::Done, "one"));

    let mut world = session(vec![vec![Say("one")]]);
    let (_, closed) = mpsc::channel(1);
    world.typed_end = Some(closed);
    let ended = world.run().await;
    assert_eq!((ended.exit, ended.report.body.as_str()), (0, "one"));
}

#[tokio::test(start_paused = true)]
async fn to_quit_ends_the_tool_that_runs_and_no_partial_answer_is_called_done() {
    let mut world = session(vec![vec![Say("I run it"), Call("1", "bash", json!({"command": "sleep 999"}))]]);
    let person = world.person(vec![(Tool(1), command(Command::Quit))]);
    let ended = world.run().await;
    person.await.unwrap();
    assert_eq!((ended.exit, ended.report.outcome), (0, Outcome::Done));
    let history = session::read(&world.dir().session()).unwrap();
    let outputs: Vec<&str> = history.messages.iter().filter_map(output).collect();
    assert_eq!(outputs, ["partial output"]);

    // Where a report was asked for, what a person broke off is none.
    let mut world = World::new(vec![vec![Say("I run it"), Call("1", "bash", json!({"command": "sleep 999"}))]]);
    let person = world.person(vec![(Tool(1), command(Command::Quit))]);
    let ended = world.run().await;
    person.await.unwrap();
    assert_eq!((ended.exit, ended.report.outcome), (4, Outcome::Limit));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_does_not_end_the_session_and_another_goes_on() {
    let refused = || Fail(ProviderError::Refused { detail: "key".into() });
    let mut world = session(vec![vec![refused()]]);
    let other = Arc::new(Script::default());
    other.answers.lock().unwrap().push_back(vec![Say("from the other")]);
    world.board = Arc::new(Board { models: vec![("openai/other", Arc::clone(&other))], ..Board::default() });
    let person = world.person(vec![
        (Idle(1), command(Command::Model("nowhere/x".into()))),
        (Idle(1), command(Command::Model("openai/other".into()))),
        (Idle(1), line("again")),
        (Idle(2), command(Command::Quit)),
    ]);
    let ended = world.run().await;
    person.await.unwrap();
    assert_eq!((ended.exit, ended.report.body.as_str()), (0, "from the other"));
    let (_, request) = &other.asked.lock().unwrap()[0];
    assert_eq!(request.model, "other");
    assert!(world.log().contains("no model is named `nowhere/x`"), "{}", world.log());
    assert_eq!(nows(&world).last().unwrap().2, "openai/other");
}

#[tokio::test(start_paused = true)]
async fn another_agent_brings_its_tools_and_prompt_and_what_was_denied_stays_denied() {
    let mut world = session(vec![
        vec![Say("one")],
        vec![Call("1", "write", json!({"path": "b.rs"})), Call("2", "write", json!({"path": "c.rs"}))],
        vec![Say("two")],
    ]);
    world.brief.spec.persona.deny = vec!["write(b.rs)".parse().unwrap()];
    let writer = persona("writer", &[ToolName::Write, ToolName::Read], Mode::Edit);
    world.board = Arc::new(Board { personas: vec![writer], ..Board::default() });
    let person = world.person(vec![
        (Idle(1), command(Command::Agent("nobody".into()))),
        (Idle(1), command(Command::Agent("writer".into()))),
        (Idle(1), line("write")),
        (Idle(2), command(Command::Quit)),
    ]);
    world.run().await;
    person.await.unwrap();
    let asked = world.asked();
    assert_eq!(offered(&asked[1]), ["write", "read"]);
    assert!(asked[1].system.starts_with("You are writer.\n\n# Where you are"), "{}", asked[1].system);
    let tree = world.directory.path().join("tree");
    assert!(!tree.join("b.rs").exists() && tree.join("c.rs").exists());
    assert!(world.log().contains("no agent is named `nobody`"));
    assert_eq!(nows(&world).last().map(|now| (now.0.as_str(), now.1)), Some(("writer", Mode::Edit)));
}

#[tokio::test(start_paused = true)]
async fn a_persona_does_not_bring_bypass_and_a_persons_word_does() {
    let mut world = session(vec![
        vec![Say("one")],
        vec![Call("1", "write", json!({"path": "b.rs"}))],
        vec![Say("asked")],
        vec![Call("2", "write", json!({"path": "c.rs"}))],
        vec![Say("free")],
    ]);
    world.brief.spec.persona.mode = Mode::Default;
    let wild = persona("wild", &[ToolName::Write], Mode::Bypass);
    world.board = Arc::new(Board { personas: vec![wild], ..Board::default() });
    let person = world.person(vec![
        (Idle(1), command(Command::Agent("wild".into()))),
        (Idle(1), line("write")),
        (When::Question(1), line("n")),
        (Idle(2), command(Command::Mode(Mode::Bypass))),
        (Idle(2), line("write")),
        (Idle(3), command(Command::Quit)),
    ]);
    world.run().await;
    person.await.unwrap();
    let tree = world.directory.path().join("tree");
    assert!(!tree.join("b.rs").exists() && tree.join("c.rs").exists());
    let modes: Vec<Mode> = nows(&world).into_iter().map(|now| now.1).collect();
    assert_eq!(modes[1..], [Mode::Default, Mode::Bypass]);
}

#[tokio::test(start_paused = true)]
async fn a_session_in_the_project_itself_gets_no_new_hands() {
    let mut world = session(vec![vec![Say("one")], vec![Say("two")]]);
    world.brief.lease.recipe = crate::model::child::Lease::SHARED.to_owned();
    world.brief.spec.persona.tools = vec![ToolName::Read];
    let writer = persona("writer", &[ToolName::Write, ToolName::Bash, ToolName::Read], Mode::Edit);
    world.board = Arc::new(Board { personas: vec![writer], ..Board::default() });
    let person = world.person(vec![
        (Idle(1), command(Command::Agent("writer".into()))),
        (Idle(1), line("go on")),
        (Idle(2), command(Command::Quit)),
    ]);
    world.run().await;
    person.await.unwrap();
    assert_eq!(offered(&world.asked()[1]), ["read"]);
    assert!(world.log().contains("without write, bash"), "{}", world.log());
}

#[tokio::test(start_paused = true)]
async fn a_command_in_the_middle_of_work_holds_from_the_next_turn_on() {
    let mut world = session(vec![]);
    let plan = world.types(command(Command::Mode(Mode::Plan)));
    world.script(vec![
        vec![read_a("1"), Do(Box::new(plan))],
        vec![Call("2", "write", json!({"path": "b.rs"}))],
        vec![Say("done")],
    ]);
    let person = world.person(vec![(Idle(1), command(Command::Quit))]);
    world.run().await;
    person.await.unwrap();
    assert!(!world.directory.path().join("tree/b.rs").exists());
    assert!(world.last_told(2).contains("plan mode is read-only"), "{}", world.last_told(2));
}
