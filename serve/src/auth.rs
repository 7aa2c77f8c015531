//! Users: a file of names, SCRAM verifiers and limits.
//!
//! A line is `name verifier [time=30s] [rows=1000000] [queries=2]`; `#` begins a comment.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, Engine as _};

use crate::error::StartError;
use crate::options::Limits;
use crate::scram::{self, Verifier};

/// Somebody who may log in.
#[derive(Debug, Clone)]
pub struct User {
    /// The name.
    pub name: String,
    /// Limits of this user's queries.
    pub limits: Limits,
    verifier: Verifier,
}

/// All users of a server.
#[derive(Debug)]
pub struct Users {
    users: BTreeMap<String, Arc<User>>,
    /// Makes salts for names that do not exist.
    secret: [u8; 32],
}

impl Users {
    /// Reads the file.
    ///
    /// # Errors
    /// [`StartError::File`] when it cannot be read, has no user, or a line is wrong.
    pub fn read(path: &Path, defaults: Limits) -> Result<Self, StartError> {
        let wrong = |cause: String| StartError::File {
            path: path.to_path_buf(),
            cause,
        };
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        if let Ok(metadata) = fs::metadata(path)
            && metadata.permissions().mode() & 0o077 != 0
        {
            log::warn!(
                "{} can be read by other users of this machine: chmod 600",
                path.display()
            );
        }
        let mut users = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let user = parse(line, defaults)
                .map_err(|cause| wrong(format!("line {}: {cause}", number + 1)))?;
            let name = user.name.clone();
            if users.insert(name.clone(), Arc::new(user)).is_some() {
                return Err(wrong(format!(
                    "line {}: a second user '{name}'",
                    number + 1
                )));
            }
        }
        if users.is_empty() {
            return Err(wrong(
                "it has no user: add one with `warpline serve --auth FILE --add-user NAME`"
                    .to_string(),
            ));
        }
        Ok(Self {
            users,
            secret: scram::random(),
        })
    }

    /// The user, if there is one of the name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<User>> {
        self.users.get(name).cloned()
    }

    /// What the name's password is checked against, and by what nobody passes if there is no such user.
    pub(crate) fn verifier(&self, name: &str) -> Verifier {
        match self.users.get(name) {
            Some(user) => user.verifier.clone(),
            None => Verifier::of_nobody(&self.secret, name),
        }
    }

    /// The user whose password it is.
    pub(crate) fn check(&self, name: &str, password: &str) -> Option<Arc<User>> {
        // As long for a name that does not exist.
        let fits = self.verifier(name).fits(password);
        self.get(name).filter(|_| fits)
    }
}

fn parse(line: &str, defaults: Limits) -> Result<User, String> {
    let mut words = line.split_whitespace();
    let (Some(name), Some(verifier)) = (words.next(), words.next()) else {
        return Err("a line has a name and a verifier".to_string());
    };
    let mut limits = Limits::default();
    for word in words {
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| format!("'{word}' is no limit: time=30s, rows=N or queries=N"))?;
        let number = || value.parse().map_err(|_| format!("'{value}' is no number"));
        match key {
            "time" => limits.time = Some(duration(value)?),
            "rows" => limits.rows = Some(number()?),
            "queries" => limits.queries = Some(number()?.max(1) as usize),
            _ => return Err(format!("'{key}' is no limit: time, rows or queries")),
        }
    }
    Ok(User {
        name: name.to_string(),
        limits: limits.or(defaults),
        verifier: verifier.parse::<Verifier>()?,
    })
}

/// A time such as `500ms`, `30s`, `5min` or `2h`; a bare number counts milliseconds, as PostgreSQL's do.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let wrong = || format!("'{text}' is no time: give 500ms, 30s, 5min or 2h");
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let milliseconds = match text[digits..].trim() {
        "ms" | "" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    Ok(Duration::from_millis(number.saturating_mul(milliseconds)))
}

/// Adds a user to the file, or gives one a new password; the limits in the file stay.
///
/// # Errors
/// [`StartError::File`] when the name or the file cannot be used.
pub fn add_user(path: &Path, name: &str, password: &str) -> Result<(), StartError> {
    let wrong = |cause: String| StartError::File {
        path: path.to_path_buf(),
        cause,
    };
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '#' || c == ':') {
        return Err(wrong(format!(
            "'{name}' cannot be a user's name: it is empty, or has a space, '#' or ':'"
        )));
    }
    if password.is_empty() {
        return Err(wrong("a password cannot be empty".to_string()));
    }
    let old = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(wrong(error.to_string())),
    };
    let verifier = Verifier::of(password);
    let mut lines: Vec<String> = Vec::new();
    let mut found = false;
    for line in old.lines() {
        let mut words = line.split_whitespace();
        if words.next() == Some(name) && words.next().is_some() {
            let rest: String = words.map(|word| format!(" {word}")).collect();
            lines.push(format!("{name} {verifier}{rest}"));
            found = true;
        } else {
            lines.push(line.to_string());
        }
    }
    if !found {
        lines.push(format!("{name} {verifier}"));
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let write = || {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all((lines.join("\n") + "\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| wrong(error.to_string()))
}

/// What `Basic` authentication encodes as `NAME:PASSWORD`. Go's clients of Flight leave out the padding that others write.
pub(crate) fn name_and_password(encoded: &str) -> Option<(String, String)> {
    let config = GeneralPurposeConfig::new();
    let config = config.with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let engine = GeneralPurpose::new(&alphabet::STANDARD, config);
    let text = String::from_utf8(engine.decode(encoded.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_string(), password.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_passwords_come_with_padding_and_without() {
        let of = |name: &str, password: &str| Some((name.to_string(), password.to_string()));
        assert_eq!(name_and_password("YWRhOmxldDptZQ=="), of("ada", "let:me"));
        assert_eq!(name_and_password("YWRhOmxldDptZQ"), of("ada", "let:me"));
        assert_eq!(name_and_password(" YWRhOndyb25n "), of("ada", "wrong"));
        for none in ["", "YWRh", "no base64!", "/w=="] {
            assert_eq!(name_and_password(none), None, "{none}");
        }
    }

    #[test]
    fn users_are_added_changed_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        add_user(&path, "ada", "first").unwrap();
        add_user(&path, "bob", "second").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("first"), "{text}");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let limited = text.replacen('\n', " time=5s queries=2\n", 1);
        fs::write(&path, limited).unwrap();
        add_user(&path, "ada", "third").unwrap();
        let users = Users::read(&path, Limits::default()).unwrap();
        assert!(users.check("ada", "first").is_none());
        assert!(users.check("eve", "third").is_none());
        let ada = users.check("ada", "third").unwrap();
        assert_eq!(ada.limits.time, Some(Duration::from_secs(5)));
        assert_eq!(ada.limits.queries, Some(2));
        assert!(users.check("bob", "second").is_some());
        assert!(add_user(&path, "a b", "x").is_err());
        assert!(add_user(&path, "a", "").is_err());
    }

    #[test]
    fn wrong_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        for text in ["", "# none\n", "ada\n", "ada secret\n", "ada md5x rows=1\n"] {
            fs::write(&path, text).unwrap();
            assert!(Users::read(&path, Limits::default()).is_err(), "{text}");
        }
        assert!(Users::read(&folder.path().join("none"), Limits::default()).is_err());
    }

    #[test]
    fn times_are_read() {
        for (text, ms) in [("250", 250), ("5ms", 5), ("30s", 30_000), ("2min", 120_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)));
        }
        assert!(duration("soon").is_err());
        assert!(duration("-1").is_err());
    }
}
