//! Words as a search sees them: identifiers split into parts, endings taken off, words that say nothing left out.
//!
//! Deliberately absent: what a question means (`question.rs`) and where a word was found (`evidence.rs`).

use std::collections::HashSet;
use std::sync::LazyLock;

/// A part of a name: as written in lower case, and without its ending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) word: String,
    pub(super) stem: String,
}

impl Part {
    pub(super) fn new(word: &str) -> Self {
        let word = word.to_lowercase();
        let stem = stem(&word);
        Self { word, stem }
    }

    /// How surely the other part means the same: 1 for the same word, less for the same stem, less for a short form.
    pub(super) fn likeness(&self, other: &Self) -> f64 {
        if self.word == other.word {
            1.0
        } else if self.stem == other.stem {
            0.85
        } else if is_short_form(&self.stem, &other.stem) {
            0.5
        } else {
            0.0
        }
    }
}

/// `auth` for `authentication`, `config` for `configuration`; three letters are too few to tell.
fn is_short_form(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    short.chars().count() >= 4 && long.starts_with(short)
}

/// The parts of an identifier, path or sentence: `HTTPServer_port` is `http`, `server`, `port`.
pub(super) fn parts(text: &str) -> Vec<Part> {
    pieces(text).into_iter().map(Part::new).collect()
}

/// Cuts at everything that is no letter or digit, and at the humps of camel case.
fn pieces(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for run in text.split(|c: char| !c.is_alphanumeric()).filter(|run| !run.is_empty()) {
        let chars: Vec<(usize, char)> = run.char_indices().collect();
        let mut start = 0;
        for i in 1..chars.len() {
            let (before, here) = (chars[i - 1].1, chars[i].1);
            let after_is_small = chars.get(i + 1).is_some_and(|(_, c)| c.is_lowercase());
            if here.is_uppercase() && (!before.is_uppercase() || after_is_small) {
                found.push(&run[start..chars[i].0]);
                start = chars[i].0;
            }
        }
        found.push(&run[start..]);
    }
    found
}

/// Whether the text is written as code is: `snake_case`, `camelCase`, `a::b`.
pub(super) fn looks_like_code(text: &str) -> bool {
    let inner = text.trim_matches('_');
    inner.contains('_') || text.contains("::") || (pieces(inner).len() > 1 && !inner.contains(['-', '.', '/']))
}

/// Endings of English, longest first, with the least that must remain before them.
const ENDINGS: &[(&str, usize)] = &[
    ("ations", 4),
    ("ation", 4),
    ("ators", 4),
    ("ating", 4),
    ("ments", 4),
    ("ator", 4),
    ("ated", 4),
    ("ates", 4),
    ("ment", 4),
    ("ions", 4),
    ("ings", 3),
    ("ate", 4),
    ("ion", 4),
    ("ing", 3),
    ("ers", 4),
    ("ed", 3),
    ("er", 4),
    ("es", 4),
];

/// The word without its ending, so that `retries`, `retrying` and `retry` meet. Not a real root, only the same one.
pub(super) fn stem(word: &str) -> String {
    if !word.is_ascii() || word.len() < 4 {
        return word.to_owned();
    }
    for y in ["ies", "ied"] {
        if let Some(root) = word.strip_suffix(y).filter(|root| root.len() >= 3) {
            return format!("{root}y");
        }
    }
    for (ending, least) in ENDINGS {
        if let Some(root) = word.strip_suffix(ending).filter(|root| root.len() >= *least) {
            return without_double(root);
        }
    }
    let plural = word.ends_with('s') && !["ss", "us", "is"].iter().any(|end| word.ends_with(end));
    let word = if plural { &word[..word.len() - 1] } else { word };
    match word.strip_suffix('e') {
        Some(root) if root.len() >= 3 => root.to_owned(),
        _ => word.to_owned(),
    }
}

/// `stopp` of `stopped` is `stop`; `call` and `pass` stay as they are.
fn without_double(root: &str) -> String {
    let bytes = root.as_bytes();
    let doubled = bytes.len() > 3
        && bytes[bytes.len() - 1] == bytes[bytes.len() - 2]
        && !matches!(bytes[bytes.len() - 1], b'l' | b's' | b'e' | b'o');
    let root = if doubled { &root[..root.len() - 1] } else { root };
    root.strip_suffix('e').filter(|rest| rest.len() >= 3).unwrap_or(root).to_owned()
}

/// A pattern that finds the word at the start of a part of a name, whatever the case and the ending.
pub(super) fn pattern(part: &Part) -> String {
    let root = root(part);
    // The stem of a word in `y` also stands before `ies`.
    let body = match root.strip_suffix('y') {
        Some(rest) if rest.chars().count() >= 3 => format!("{}(?:y|ie)", regex::escape(rest)),
        _ => regex::escape(&root),
    };
    if root.chars().count() >= 5 {
        return format!("(?i:{body})");
    }
    // A short word also hides inside others (`run` in `truncate`), so it must begin at a hump or an underscore.
    let mut chars = body.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("(?:(?:\\b|_)(?i:{body})|{first}{})", chars.as_str())
}

/// What all forms of the word begin with: the stem, or the word where the stem is no prefix of it.
pub(super) fn root(part: &Part) -> String {
    if part.stem.chars().count() >= 3 { part.stem.clone() } else { part.word.clone() }
}

/// The first letters that any text with this part must hold, in lower case.
pub(super) fn needle(part: &Part) -> String {
    let root = root(part);
    root.strip_suffix('y').filter(|rest| rest.len() >= 3).map_or(root.clone(), str::to_owned)
}

/// Words that say how to ask and not what is sought.
pub(super) fn is_stop_word(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| STOP_WORDS.split_whitespace().collect());
    WORDS.contains(word)
}

/// Words that mostly say what to answer with, but may be what is sought: `Where is the report written?`
pub(super) fn is_faint(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| FAINT_WORDS.split_whitespace().collect());
    WORDS.contains(word)
}

/// English first, then the little words of the languages people also ask in.
const STOP_WORDS: &str = "
    a about above actual actually after again all also am an and another any anything anywhere are aren as ask at
    be because been before being below best between both briefly but by can cannot carefully could currently did do does
    doesn doing don done down during each either else etc ever every everything exactly explain explore few for from
    further get give given gives go goes going good had happen happening happens has have having he hello help her here
    hey hi him his how however i if in inside instead into is isn it its itself just keep kind know let like likely lives
    ll locate located look looking lot made main make makes many may maybe me mean means might more most much must my need
    needs never no nor not now of off ok okay on once one only onto or other others our out over own per please possible
    put quick quickly quite rather re really related relevant responsible right s same say see seen several shall she
    should show shows simply so some something somewhere still stuff such sure t take tell than thank thanks that the
    their them then there these they thing things this those three through thus to together too two under until up us
    use used useful uses using various ve very via want was way ways we well were what when where whether which while
    who whole whose why will with within without work worked working works would yes yet you your yours
    declaration declared define defined defines definition definitions describe description find found identify implement
    implementation implementations implemented implements important include included investigate involved summarise
    summarize understand understanding cite cited brief concise detailed logic repo repository codebase
    wo ist sind der die das den dem ein eine einer und oder wird werden wurde wie was welche welcher welches datei zeile
    im von zu mit fuer für auf nicht bitte zeige finde definiert steht
    ou où est sont le la les un une des du de et dans qui que quel quelle quels quelles comment pourquoi fichier ligne
    avec pour sur pas trouve trouver définie défini définies
    donde dónde esta está estan están el los las una unos unas y o en que qué cual cuál como cómo por para con archivo
    linea línea definida definido encuentra
    dove il lo gli uno e è di che quale quali come perché funziona riga trova
    onde fica os as um uma ao em no na nos nas qual quais arquivo linha encontre
    где находится находятся как работает что это в на и или для по из файл строка какой какая какие найди";

const FAINT_WORDS: &str = "
    answer answers call called caller callers calling calls citation citations code detail details document
    evidence example examples file filename filenames files line lines list listed live location locations lookup mention
    name named names number numbers overview part parts path paths place places project question questions quote read
    reading report reports result results return returns section sections short single snippet source
    sources specific structure summary usage usages walk write written";

/// Words for one idea, tried only when the asked word itself is not there.
pub(super) fn synonyms(stem: &str) -> impl Iterator<Item = &'static str> {
    static GROUPS: LazyLock<Vec<Vec<&'static str>>> =
        LazyLock::new(|| SYNONYMS.lines().map(|line| line.split_whitespace().collect()).collect());
    let stem = stem.to_owned();
    GROUPS.iter().filter(move |group| group.iter().any(|word| self::stem(word) == stem)).flatten().copied()
}

const SYNONYMS: &str = "auth authenticate authorize login signin credential
config configuration setting option preference
delete remove drop unlink erase
create make new build add insert
start launch spawn boot begin init
stop kill terminate shutdown cancel abort
error exception failure fault
retry backoff reattempt
limit cap quota throttle budget maximum
send post emit publish dispatch
receive listen consume subscribe
save store persist write
load read fetch open
cache memo memoize
log logger trace
user account member
database db sql storage
test spec check
schedule cron timer
route endpoint url handler
permission access gate policy
window pane screen
message event notification
cost price usage spend
parse decode deserialize
format encode serialize render";

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        parts(text).into_iter().map(|part| part.word).collect()
    }

    #[test]
    fn an_identifier_is_split_whatever_its_convention() {
        assert_eq!(split("HTTPServer_port"), ["http", "server", "port"]);
        assert_eq!(split("retryDelay"), split("retry_delay"));
        assert_eq!(split("retry-delay"), split("RetryDelay"));
        assert_eq!(split("src/tools/agent.py"), ["src", "tools", "agent", "py"]);
        assert_eq!(split("日本 größe"), ["日本", "größe"]);
    }

    #[test]
    fn forms_of_a_word_meet_in_one_stem_and_other_words_do_not() {
        for forms in [
            &["retry", "retries", "retried", "retrying"][..],
            &["parse", "parser", "parsing", "parsed", "parses"],
            &["validate", "validation", "validator"],
            &["stop", "stops", "stopped", "stopping"],
            &["create", "creating", "creation", "created"],
            &["agent", "agents"],
            &["cache", "caches", "caching", "cached"],
            &["call", "calls", "called", "calling"],
        ] {
            let stems: HashSet<String> = forms.iter().map(|form| stem(form)).collect();
            assert_eq!(stems.len(), 1, "{forms:?} gave {stems:?}");
        }
        assert_ne!(stem("status"), stem("state"));
        assert_ne!(stem("class"), stem("clas"));
    }

    #[test]
    fn the_pattern_of_a_short_word_does_not_match_inside_another() {
        let run = regex::Regex::new(&pattern(&Part::new("run"))).unwrap();
        for yes in ["run", "fn run_child", "child_run", "childRun", "Runner", "RUN"] {
            assert!(run.is_match(yes), "{yes}");
        }
        for no in ["truncate", "prune", "overrun"] {
            assert!(!run.is_match(no), "{no}");
        }
        let retry = regex::Regex::new(&pattern(&Part::new("retries"))).unwrap();
        assert!(retry.is_match("MAX_RETRIES") && retry.is_match("retryDelay"));
    }
}
