//! A shell line, read twice: strictly, to know every command in it, or roughly, to find what may hide in it.
//!
//! The strict reading knows plain words, quotes that expand nothing, `&&`, `||`, `|`, `;` and line ends, and gives up on
//! all else: what it returns is what a shell runs. Deliberately absent: a shell grammar. A reader that guesses at
//! expansions and here-documents is wrong sooner or later, and asking costs little.

use std::iter::Peekable;
use std::str::Chars;

/// A word as the program gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// The shell replaces it by file names; each starts with the word's first character, which is no dash.
    pub(super) globs: bool,
}

/// The words of one simple command; never empty.
pub(super) type Command = Vec<Word>;

/// Words that change what the following ones mean.
const RESERVED: &[&str] = &[
    "!", "[[", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select",
    "then", "time", "until", "while",
];

/// All simple commands of the line, or what was not understood.
pub(super) fn parse(line: &str) -> Result<Vec<Command>, &'static str> {
    let mut reader = Reader { chars: line.chars().peekable(), commands: Vec::new(), command: Vec::new(), word: None };
    let mut joined = false;
    while let Some(c) = reader.chars.next() {
        match c {
            ' ' | '\t' => reader.end_word()?,
            '\n' if reader.is_between_commands() => {}
            ';' | '\n' => {
                reader.end_command()?;
                joined = false;
            }
            '&' | '|' => {
                let doubled = reader.chars.next_if_eq(&c).is_some();
                if c == '&' && !doubled {
                    return Err("it starts something in the background");
                }
                reader.end_command()?;
                joined = true;
            }
            '#' if reader.word.is_none() => while reader.chars.next_if(|c| *c != '\n').is_some() {},
            '\'' | '"' => reader.quoted(c)?,
            c => reader.plain(c)?,
        }
    }
    reader.end_word()?;
    if !reader.command.is_empty() {
        reader.end_command()?;
    } else if joined {
        return Err("it ends in an operator");
    }
    Ok(reader.commands)
}

struct Reader<'a> {
    chars: Peekable<Chars<'a>>,
    commands: Vec<Command>,
    command: Command,
    word: Option<Word>,
}

impl Reader<'_> {
    fn is_between_commands(&self) -> bool {
        self.word.is_none() && self.command.is_empty()
    }

    fn word(&mut self) -> &mut Word {
        self.word.get_or_insert(Word { text: String::new(), globs: false })
    }

    fn end_word(&mut self) -> Result<(), &'static str> {
        let Some(word) = self.word.take() else { return Ok(()) };
        if self.command.is_empty() {
            if word.globs || word.text.is_empty() {
                return Err("its command is not a plain word");
            }
            if word.text.contains('=') {
                return Err("it sets a variable");
            }
            if RESERVED.contains(&word.text.as_str()) {
                return Err("it is more than simple commands");
            }
        }
        self.command.push(word);
        Ok(())
    }

    fn end_command(&mut self) -> Result<(), &'static str> {
        self.end_word()?;
        if self.command.is_empty() {
            return Err("an operator has no command before it");
        }
        self.commands.push(std::mem::take(&mut self.command));
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<(), &'static str> {
        self.word();
        loop {
            match self.chars.next() {
                None => return Err("a quote is not closed"),
                Some(c) if c == quote => return Ok(()),
                Some('$' | '`') if quote == '"' => return Err("it expands something inside double quotes"),
                Some('\\') if quote == '"' => return Err("it has a backslash inside double quotes"),
                Some('\0') => return Err("it has a NUL"),
                Some(c) => self.word().text.push(c),
            }
        }
    }

    fn plain(&mut self, c: char) -> Result<(), &'static str> {
        let before = self.word.as_ref().and_then(|word| word.text.chars().next_back());
        match c {
            '$' | '`' => return Err("it expands something"),
            '\\' => return Err("it has a backslash"),
            '<' | '>' => return Err("it redirects"),
            '(' | ')' | '{' | '}' => return Err("it groups or expands with brackets"),
            '*' | '?' | '[' => {
                // `*` alone may become a file that is named like an option.
                let first = self.word.as_ref().and_then(|word| word.text.chars().next());
                if first.is_none_or(|first| first == '-') {
                    return Err("it expands file names");
                }
                self.word().globs = true;
            }
            // `HEAD~1` is a word, `~/x` and `a=~/x` are somebody's home.
            '~' if !before.is_some_and(|before| before.is_alphanumeric() || "^~_.".contains(before)) => {
                return Err("it expands `~`");
            }
            c if c.is_control() || (!c.is_ascii() && c.is_whitespace()) => {
                return Err("it has a control character");
            }
            _ => {}
        }
        self.word().text.push(c);
        Ok(())
    }
}

/// Stands in a rough word for whatever the shell puts there.
pub(super) const ANYTHING: char = '\u{fffc}';

/// How the rough reading takes quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    Keep,
    /// Something in the line runs text as a command: what is quoted is words as well.
    Open,
}

/// All words that may be in the line, in order, with quotes and backslashes taken off and expansions as `ANYTHING`.
pub(super) fn rough(line: &str, quotes: Quotes) -> Vec<String> {
    let mut words = Rough { words: Vec::new(), word: None };
    let mut chars = line.chars().peekable();
    let mut inside: Option<char> = None;
    while let Some(c) = chars.next() {
        match (c, inside) {
            ('\'' | '"', _) if quotes == Quotes::Open => words.end(),
            ('\'', Some('\'')) | ('"', Some('"')) => inside = None,
            ('\'' | '"', None) => {
                inside = Some(c);
                words.push("");
            }
            ('\\', None | Some('"')) => {
                if let Some(next) = chars.next().filter(|next| *next != '\n') {
                    words.push_char(next);
                }
            }
            ('$', None | Some('"')) => expansion(&mut chars, &mut words),
            ('*' | '?', None) => words.push_char(ANYTHING),
            ('[', None) => {
                words.push_char(ANYTHING);
                let ahead: String = chars.clone().take_while(|c| !c.is_whitespace()).collect();
                if let Some(end) = ahead.find(']') {
                    chars.nth(ahead[..end].chars().count());
                }
            }
            ('`', None | Some('"')) | (')' | '{' | '}', None) => words.unknown(),
            (' ' | '\t' | '\n' | '\r' | ';' | '&' | '|' | '(' | '<' | '>' | '=' | ',', None) => words.end(),
            (c, _) => words.push_char(c),
        }
    }
    words.end();
    words.words
}

/// After a dollar sign: a name is swallowed, brackets become separators around what they hold.
fn expansion(chars: &mut Peekable<Chars<'_>>, words: &mut Rough) {
    match chars.peek() {
        Some('(' | '{') => {
            chars.next();
            words.unknown();
        }
        Some('\'' | '"') => words.push_char(ANYTHING),
        _ => {
            words.push_char(ANYTHING);
            let mut first = true;
            while chars.next_if(|c| c.is_alphanumeric() || *c == '_' || (first && "@*#?$!-".contains(*c))).is_some() {
                first = false;
            }
        }
    }
}

struct Rough {
    words: Vec<String>,
    word: Option<String>,
}

impl Rough {
    fn push(&mut self, text: &str) {
        self.word.get_or_insert_default().push_str(text);
    }

    fn push_char(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn end(&mut self) {
        self.words.extend(self.word.take());
    }

    /// Whatever comes out of a substitution may be glued to the words beside it or be words of its own.
    fn unknown(&mut self) {
        if let Some(word) = &mut self.word {
            word.push(ANYTHING);
        }
        self.end();
        self.words.push(ANYTHING.to_string());
    }
}
