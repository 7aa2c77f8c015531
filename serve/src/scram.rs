//! SCRAM-SHA-256 (RFC 5802, RFC 7677): verifiers in place of passwords, and the server's side of the exchange.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

const KEY_BYTES: usize = digest::SHA256_OUTPUT_LEN;
const SALT_BYTES: usize = 16;

/// PostgreSQL's number of rounds.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("4096 is not 0");

/// Most rounds of a verifier, so that none in a file makes each log-in take minutes.
const MOST_ITERATIONS: u32 = 10_000_000;

type Key = [u8; KEY_BYTES];

/// What a password is checked against; neither it nor an equivalent can be computed back.
///
/// Its text is PostgreSQL's: `SCRAM-SHA-256$4096:salt$StoredKey:ServerKey`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Verifier {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

impl Verifier {
    /// With a fresh salt.
    pub(crate) fn of(password: &str) -> Self {
        Self::with(password, random::<SALT_BYTES>().to_vec(), ITERATIONS)
    }

    /// One that no password fits, the same for a name each time: whether a user exists stays hidden.
    pub(crate) fn of_nobody(secret: &[u8], name: &str) -> Self {
        let salt = mac(secret, name.as_bytes());
        Self {
            iterations: ITERATIONS,
            salt: salt[..SALT_BYTES].to_vec(),
            stored_key: random(),
            server_key: random(),
        }
    }

    fn with(password: &str, salt: Vec<u8>, iterations: NonZeroU32) -> Self {
        let salted = salted(password, &salt, iterations);
        let client_key = mac(&salted, b"Client Key");
        Self {
            iterations,
            stored_key: hash(&client_key),
            server_key: mac(&salted, b"Server Key"),
            salt,
        }
    }

    /// Whether the password is the right one.
    pub(crate) fn fits(&self, password: &str) -> bool {
        let salted = salted(password, &self.salt, self.iterations);
        same(&hash(&mac(&salted, b"Client Key")), &self.stored_key)
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SCRAM-SHA-256${}:{}${}:{}",
            self.iterations,
            STANDARD.encode(&self.salt),
            STANDARD.encode(self.stored_key),
            STANDARD.encode(self.server_key)
        )
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(…)")
    }
}

impl FromStr for Verifier {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "a verifier has the form SCRAM-SHA-256$rounds:salt$key:key";
        let parts = || {
            let rest = text.strip_prefix("SCRAM-SHA-256$")?;
            let (head, keys) = rest.split_once('$')?;
            let (iterations, salt) = head.split_once(':')?;
            let (stored, server) = keys.split_once(':')?;
            let iterations = iterations.parse::<NonZeroU32>().ok()?;
            let key = |text: &str| Key::try_from(STANDARD.decode(text).ok()?).ok();
            Some(Self {
                iterations: Some(iterations).filter(|n| n.get() <= MOST_ITERATIONS)?,
                salt: STANDARD.decode(salt).ok()?,
                stored_key: key(stored)?,
                server_key: key(server)?,
            })
        };
        parts().ok_or(FORM)
    }
}

/// Why an exchange failed; clients learn no more than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A message is not what the protocol says.
    Message,
    /// The proof is wrong.
    Proof,
}

/// The server's side after the client's first message.
#[derive(Debug)]
pub(crate) struct Exchange {
    verifier: Verifier,
    gs2_header: String,
    client_first: String,
    server_first: String,
    nonce: String,
}

impl Exchange {
    /// Reads `n,,n=user,r=nonce` and answers with salt and rounds.
    pub(crate) fn begin(verifier: Verifier, message: &[u8]) -> Result<(Self, String), Failure> {
        let nonce = STANDARD.encode(random::<18>());
        Self::begin_with(verifier, message, &nonce)
    }

    fn begin_with(
        verifier: Verifier,
        message: &[u8],
        own_nonce: &str,
    ) -> Result<(Self, String), Failure> {
        let text = std::str::from_utf8(message).map_err(|_| Failure::Message)?;
        let mut parts = text.splitn(3, ',');
        let (Some(binding), Some(identity), Some(bare)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(Failure::Message);
        };
        // `y`: the client could bind to the TLS channel, and knows that this server does not offer it.
        if !matches!(binding, "n" | "y") {
            return Err(Failure::Message);
        }
        let client_nonce = bare
            .split(',')
            .find_map(|attribute| attribute.strip_prefix("r="))
            .filter(|nonce| !nonce.is_empty())
            .ok_or(Failure::Message)?;
        if bare.starts_with("m=") {
            return Err(Failure::Message);
        }
        let nonce = format!("{client_nonce}{own_nonce}");
        let server_first = format!(
            "r={nonce},s={},i={}",
            STANDARD.encode(&verifier.salt),
            verifier.iterations
        );
        let exchange = Self {
            gs2_header: format!("{binding},{identity},"),
            client_first: bare.to_string(),
            server_first: server_first.clone(),
            nonce,
            verifier,
        };
        Ok((exchange, server_first))
    }

    /// Checks `c=…,r=…,p=proof` and answers with the server's signature.
    pub(crate) fn finish(&self, message: &[u8]) -> Result<String, Failure> {
        let text = std::str::from_utf8(message).map_err(|_| Failure::Message)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(Failure::Message)?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next().and_then(|a| a.strip_prefix("c="));
        let nonce = attributes.next().and_then(|a| a.strip_prefix("r="));
        if binding != Some(STANDARD.encode(&self.gs2_header).as_str())
            || nonce != Some(self.nonce.as_str())
        {
            return Err(Failure::Message);
        }
        let proof = STANDARD.decode(proof).map_err(|_| Failure::Message)?;
        let proof = Key::try_from(proof).map_err(|_| Failure::Message)?;
        let signed = format!(
            "{},{},{without_proof}",
            self.client_first, self.server_first
        );
        let signature = mac(&self.verifier.stored_key, signed.as_bytes());
        let mut client_key = proof;
        for (byte, other) in client_key.iter_mut().zip(signature) {
            *byte ^= other;
        }
        if !same(&hash(&client_key), &self.verifier.stored_key) {
            return Err(Failure::Proof);
        }
        let signature = mac(&self.verifier.server_key, signed.as_bytes());
        Ok(format!("v={}", STANDARD.encode(signature)))
    }
}

fn salted(password: &str, salt: &[u8], iterations: NonZeroU32) -> Key {
    // What cannot be normalised is taken as it is, as PostgreSQL does.
    let normal = stringprep::saslprep(password).unwrap_or(password.into());
    let mut key = [0; KEY_BYTES];
    pbkdf2::derive(
        pbkdf2::PBKDF2_HMAC_SHA256,
        iterations,
        salt,
        normal.as_bytes(),
        &mut key,
    );
    key
}

fn mac(key: &[u8], text: &[u8]) -> Key {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    let mut bytes = [0; KEY_BYTES];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

fn hash(text: &[u8]) -> Key {
    let digest = digest::digest(&digest::SHA256, text);
    let mut bytes = [0; KEY_BYTES];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

/// Compares in a time that does not depend on where they differ.
fn same(a: &Key, b: &Key) -> bool {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system gives random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677.
    #[test]
    fn the_exchange_is_that_of_the_standard() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::with("pencil", salt, ITERATIONS);
        let (exchange, first) = Exchange::begin_with(
            verifier,
            b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        )
        .unwrap();
        assert_eq!(
            first,
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(
            exchange.finish(last.as_bytes()).unwrap(),
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
        let wrong = last.replace("dHzb", "eHzb");
        assert_eq!(exchange.finish(wrong.as_bytes()), Err(Failure::Proof));
        for broken in ["", "c=biws", "c=eSws,r=x,p=AA==", ",p="] {
            assert_eq!(exchange.finish(broken.as_bytes()), Err(Failure::Message));
        }
    }

    #[test]
    fn verifiers_are_text_and_back() {
        let verifier = Verifier::of("geheim");
        let text = verifier.to_string();
        assert!(!text.contains("geheim"));
        assert_eq!(text.parse(), Ok(verifier.clone()));
        assert!(verifier.fits("geheim"));
        assert!(!verifier.fits("gehein"));
        for broken in ["", "md5abc", "SCRAM-SHA-256$0:AA==$AA==:AA=="] {
            assert!(broken.parse::<Verifier>().is_err());
        }
    }

    #[test]
    fn first_messages_that_are_none_are_refused() {
        for broken in [
            "",
            "n",
            "n,,",
            "p=tls-unique,,n=u,r=x",
            "n,,n=u",
            "n,,m=x,n=u,r=x",
            "\u{ff}",
        ] {
            let outcome = Exchange::begin(Verifier::of("x"), broken.as_bytes());
            assert_eq!(outcome.err(), Some(Failure::Message), "{broken}");
        }
    }
}
