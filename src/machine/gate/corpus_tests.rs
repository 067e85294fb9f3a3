//! The corpus: ways round a rule with their harmless neighbours, and what developers write all day.
//!
//! `corpus.txt` holds policies and lines; its head says how. The rates are printed. Deliberately absent: the cases; who
//! finds a new way round a rule adds a line there.

use super::tests::{bash, rules};
use super::*;

const CORPUS: &str = include_str!("corpus.txt");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Allow,
    Ask,
    Deny,
    /// An ordinary command: whether it may be asked is a matter of the rate.
    Ordinary,
}

struct Case {
    want: Want,
    policy: Policy,
    line: String,
    why: String,
}

fn cases() -> Vec<Case> {
    let mut policies: Vec<(String, Policy)> = Vec::new();
    let mut cases = Vec::new();
    for text in CORPUS.lines().filter(|text| !text.is_empty() && !text.starts_with('#')) {
        let fields: Vec<&str> = text.split('\t').collect();
        match fields.as_slice() {
            ["policy", name, mode, allow, deny] => {
                let list = |text: &str| rules(&text.split(" ; ").filter(|rule| *rule != "-").collect::<Vec<_>>());
                let policy = Policy {
                    mode: mode.parse().unwrap(),
                    allow: list(allow),
                    deny: list(deny),
                    confinement: Confinement::None,
                };
                policies.push(((*name).to_owned(), policy));
            }
            [want, policy, line, why] => {
                let want = match *want {
                    "allow" => Want::Allow,
                    "ask" => Want::Ask,
                    "deny" => Want::Deny,
                    "ordinary" => Want::Ordinary,
                    other => panic!("`{other}` is no decision: {text}"),
                };
                let found = policies.iter().find(|(name, _)| name == policy);
                let (_, policy) = found.unwrap_or_else(|| panic!("no such policy: {text}"));
                let line = line.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\");
                cases.push(Case { want, policy: policy.clone(), line, why: (*why).to_owned() });
            }
            _ => panic!("neither a policy nor a case: {text}"),
        }
    }
    cases
}

#[test]
fn no_case_of_the_corpus_is_judged_otherwise_than_it_says() {
    let cases = cases();
    let mut wrong = Vec::new();
    let (mut hostile, mut bypassed, mut ordinary, mut asked, mut denied) = (0, 0, 0, 0, 0);
    for case in &cases {
        let decision = bash(&case.line, &case.policy);
        let fits = match case.want {
            Want::Allow => decision == Decision::Allow,
            Want::Ask | Want::Deny => {
                hostile += 1;
                bypassed += usize::from(decision == Decision::Allow);
                matches!(
                    (case.want, &decision),
                    (Want::Ask, Decision::Ask { .. }) | (Want::Deny, Decision::Deny { .. })
                )
            }
            Want::Ordinary => {
                ordinary += 1;
                asked += usize::from(matches!(decision, Decision::Ask { .. }));
                denied += usize::from(matches!(decision, Decision::Deny { .. }));
                if decision != Decision::Allow {
                    eprintln!("{:?}: {decision:?}", case.line);
                }
                true
            }
        };
        if !fits {
            wrong.push(format!("{:?} wanted ({}): {:?}: {decision:?}", case.want, case.why, case.line));
        }
    }
    eprintln!(
        "{} cases; {bypassed} of {hostile} went round a rule; of {ordinary} ordinary commands {asked} asked, {denied} denied",
        cases.len()
    );
    assert!(wrong.is_empty(), "{} wrong: {wrong:#?}", wrong.len());
    assert!(cases.len() - ordinary >= 250, "{} cases are too few", cases.len() - ordinary);
    assert!(ordinary >= 100 && denied * 50 <= ordinary && asked * 10 <= ordinary, "{asked} asked, {denied} denied");
}

#[test]
fn every_case_gives_its_reason() {
    for case in cases() {
        assert!(case.why.len() > 3, "{:?} has no reason", case.line);
    }
}
