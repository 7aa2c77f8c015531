//! Splits input into SQL statements and backslash commands.

/// One thing to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    /// One SQL statement without its semicolon.
    Sql(String),
    /// A line that starts with a backslash, without it.
    Command(String),
}

/// Takes lines and gives items as they become complete.
///
/// A semicolon ends a statement unless it stands in quotes, in a comment or in a dollar-quoted string. A backslash
/// begins a command only where a statement could begin.
#[derive(Debug, Default)]
pub(super) struct Script {
    pending: String,
    state: State,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Plain,
    /// In `'…'` or `"…"`; a doubled quote leaves and enters again, which is right.
    Quoted(char),
    LineComment,
    /// In `/* … */`, which nests.
    BlockComment(usize),
    /// In `$tag$ … $tag$`.
    Dollar(String),
}

impl Script {
    /// Adds one line and returns the items that it completes.
    pub(super) fn line(&mut self, line: &str) -> Vec<Item> {
        let may_begin = self.state == State::Plain && is_only_comments(&self.pending);
        if let Some(command) = line.trim().strip_prefix('\\').filter(|_| may_begin) {
            self.pending.clear();
            let command = command.trim_end_matches(';').trim();
            return vec![Item::Command(command.to_string())];
        }
        let mut items = Vec::new();
        let characters: Vec<char> = line.chars().chain(std::iter::once('\n')).collect();
        let mut at = 0;
        while at < characters.len() {
            at += self.step(&characters[at..], &mut items);
        }
        items
    }

    /// Ends the input: what is pending counts as a statement even without a semicolon.
    pub(super) fn end(&mut self) -> Option<Item> {
        self.state = State::Plain;
        let text = std::mem::take(&mut self.pending);
        let text = text.trim();
        (!is_only_comments(text)).then(|| Item::Sql(text.to_string()))
    }

    /// Consumes some characters and returns how many.
    fn step(&mut self, rest: &[char], items: &mut Vec<Item>) -> usize {
        let (first, second) = (rest[0], rest.get(1).copied());
        let mut taken = 1;
        match &mut self.state {
            State::Plain => match (first, second) {
                (';', _) => {
                    items.extend(self.end());
                    return 1;
                }
                ('\'' | '"', _) => self.state = State::Quoted(first),
                ('-', Some('-')) => self.state = State::LineComment,
                ('/', Some('*')) => {
                    self.state = State::BlockComment(1);
                    taken = 2;
                }
                ('$', _) => {
                    if let Some(tag) = dollar_tag(rest) {
                        taken = tag.chars().count();
                        self.state = State::Dollar(tag);
                    }
                }
                _ => {}
            },
            State::Quoted(quote) => {
                if first == *quote {
                    self.state = State::Plain;
                }
            }
            State::LineComment => {
                if first == '\n' {
                    self.state = State::Plain;
                }
            }
            State::BlockComment(depth) => match (first, second) {
                ('*', Some('/')) => {
                    taken = 2;
                    *depth -= 1;
                    if *depth == 0 {
                        self.state = State::Plain;
                    }
                }
                ('/', Some('*')) => {
                    taken = 2;
                    *depth += 1;
                }
                _ => {}
            },
            State::Dollar(tag) => {
                if tag
                    .chars()
                    .eq(rest.iter().copied().take(tag.chars().count()))
                {
                    taken = tag.chars().count();
                    self.state = State::Plain;
                }
            }
        }
        self.pending.extend(&rest[..taken]);
        taken
    }
}

/// `$tag$` or `$$` at the start of the characters.
fn dollar_tag(rest: &[char]) -> Option<String> {
    let length = rest.iter().skip(1).position(|&c| c == '$')?;
    let name = &rest[1..=length];
    let is_name = name
        .iter()
        .enumerate()
        .all(|(i, c)| *c == '_' || c.is_alphabetic() || (i > 0 && c.is_ascii_digit()));
    is_name.then(|| rest[..length + 2].iter().collect())
}

/// True when no SQL is left beside line comments.
fn is_only_comments(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .all(|line| line.is_empty() || line.starts_with("--"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &str) -> Vec<Item> {
        let mut script = Script::default();
        let mut items: Vec<Item> = text.lines().flat_map(|line| script.line(line)).collect();
        items.extend(script.end());
        items
    }

    fn sql(text: &str) -> Item {
        Item::Sql(text.to_string())
    }

    #[test]
    fn statements_end_at_semicolons_outside_quotes_and_comments() {
        assert_eq!(
            items("SELECT 1; SELECT 2"),
            [sql("SELECT 1"), sql("SELECT 2")]
        );
        assert_eq!(
            items("SELECT ';', \";\", 'it''s;';"),
            [sql("SELECT ';', \";\", 'it''s;'")]
        );
        assert_eq!(
            items("SELECT 1 -- no; end\n+ 1;"),
            [sql("SELECT 1 -- no; end\n+ 1")]
        );
        assert_eq!(
            items("SELECT /* a; /* b; */ ; */ 1;"),
            [sql("SELECT /* a; /* b; */ ; */ 1")]
        );
        assert_eq!(
            items("SELECT $a$ ; $$ ; $a$;"),
            [sql("SELECT $a$ ; $$ ; $a$")]
        );
        assert_eq!(
            items("SELECT $1; SELECT 2;"),
            [sql("SELECT $1"), sql("SELECT 2")]
        );
        assert_eq!(items("-- nothing\n;;\n -- more\n"), []);
    }

    #[test]
    fn commands_begin_where_a_statement_could() {
        let command = |text: &str| Item::Command(text.to_string());
        assert_eq!(
            items("\\d\nSELECT 1\n\\q\n;"),
            [command("d"), sql("SELECT 1\n\\q")]
        );
        assert_eq!(
            items("SELECT 1;\n-- now:\n  \\timing off \n"),
            [sql("SELECT 1"), command("timing off")]
        );
    }
}
