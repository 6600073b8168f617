//! Passwords and tokens in texts.

/// The ends of keys whose values are secrets.
const KEYS: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "pass",
    "pas",
    "pwd",
    "psw",
    "pw",
    "token",
    "auth",
    "secret",
    "key",
    "session",
    "signature",
];
/// The text in the place of a secret.
const HIDDEN: &str = "…";

/// The text without the passwords and tokens of the addresses in it, for everything that leaves the program: messages, logs,
/// names and results.
///
/// Of `user:password@host` the host stays, also if the password contains a slash or an @. The value of a key such as
/// `password`, `pwd` or `token` is left out up to the next `&`, in a query (`?user=a&pwd=b`) and in a path
/// (`/user=a&password=b`). Where it is not clear what belongs to the password, more than the password is left out. To take
/// the secrets out of the result changes nothing.
pub fn without_secrets(text: &str) -> String {
    let mut clean = once(text);
    // What was left out may have hidden a user or a key from the first look.
    loop {
        let again = once(&clean);
        if again == clean {
            return clean;
        }
        clean = again;
    }
}

fn once(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for word in text.split_inclusive(char::is_whitespace) {
        let (word, space) = word.split_at(word.trim_end().len());
        put_without_values(&mut clean, &without_user(word));
        clean.push_str(space);
    }
    clean
}

/// An address without its user and password.
fn without_user(word: &str) -> String {
    let Some(at) = word.rfind('@') else { return word.to_owned() };
    let (before, host) = word.split_at(at);
    // An address may be written without its protocol, or with one slash.
    let start = match before.find("://") {
        Some(colon) => colon + "://".len(),
        None if !word.contains('/') => return word.to_owned(),
        None => {
            let after = |mark: &str| before.find(mark).map(|at| at + 2);
            after(":/").or_else(|| after("//")).unwrap_or_default()
        }
    };
    let user = &before[start..];
    let authority = user.split(['/', '?', '#']).next().unwrap_or_default();
    // `[user@]host` is how messages write what an address may have.
    let is_notation = host.starts_with("@]");
    if is_notation || user.is_empty() || !(authority.contains([':', '@']) || authority.len() == user.len()) {
        return word.to_owned();
    }
    format!("{}{HIDDEN}{host}", &before[..start])
}

/// Adds an address without the values of keys that name secrets.
fn put_without_values(clean: &mut String, mut word: &str) {
    while let Some(equals) = word.find('=') {
        let (before, rest) = word.split_at(equals + 1);
        clean.push_str(before);
        let key = before[..equals].to_lowercase();
        // A key of an address follows a separator; others are options and names.
        let is_of_address = clean[..clean.len() - 1].contains(['?', '&', '/', ';']);
        word = rest;
        if is_of_address && KEYS.iter().any(|known| key.ends_with(known)) {
            let value = rest.split('&').next().unwrap_or_default();
            // What follows an address in a sentence.
            let punctuation =
                value.len() - value.trim_end_matches([':', ',', '.', ';', ')', '"', '\'']).len();
            clean.push_str(HIDDEN);
            word = &rest[value.len() - punctuation..];
        }
    }
    clean.push_str(word);
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn secrets_stay_out_of_texts() {
        for (text, expected) in [
            ("rtsp://admin:secret@10.0.0.7:554/ch1", "rtsp://…@10.0.0.7:554/ch1"),
            ("rtsp://admin:p@secret@camera/x", "rtsp://…@camera/x"),
            ("rtsp://u:a/secret@host/x", "rtsp://…@host/x"),
            ("rtsp://u:a/se?c#r@secret@host", "rtsp://…@host"),
            ("rtsp://u:12/secret@host:554/x", "rtsp://…@host:554/x"),
            ("rtsp://secret@host/x", "rtsp://…@host/x"),
            ("http://camera/a@b", "http://camera/a@b"),
            ("rtsp://camera", "rtsp://camera"),
            ("udp://@239.0.0.1:1234", "udp://@239.0.0.1:1234"),
            ("rtsp://10.0.0.7/?user=admin&pwd=secret", "rtsp://10.0.0.7/?user=admin&pwd=…"),
            (
                "http://h/v.cgi?loginuse=a&loginpas=secret&rate=0",
                "http://h/v.cgi?loginuse=a&loginpas=…&rate=0",
            ),
            ("http://h/live?Token=secret#top", "http://h/live?Token=…"),
            ("http://h/live?x=1&access_token=secret=&y=2", "http://h/live?x=1&access_token=…&y=2"),
            ("rtsp://h:554/user=a&password=secret&channel=1", "rtsp://h:554/user=a&password=…&channel=1"),
            ("rtsp://h:554/user=a_password=secret_channel=1.sdp", "rtsp://h:554/user=a_password=…"),
            ("rtsp://h/user=a&password=s/e?cret&stream=0", "rtsp://h/user=a&password=…&stream=0"),
            (
                "cannot open rtsp://u:secret@h/x: no answer from rtsp://h/?pwd=secret: lost",
                "cannot open rtsp://…@h/x: no answer from rtsp://h/?pwd=…: lost",
            ),
            ("\"rtsp://u:a'secret@h/x\"", "\"rtsp://…@h/x\""),
            ("door:x=rtsp://u:secret@h/x: expected a source", "door:x=rtsp://…@h/x: expected a source"),
            ("no video, rtsp:/u:secret@h/x", "no video, rtsp:/…@h/x"),
            ("no video, admin:secret@10.0.0.7/x", "no video, …@10.0.0.7/x"),
            ("192.168.1.2/user=a&password=secret", "192.168.1.2/user=a&password=…"),
            ("expected mqtt://[user@]host[:port]/topic", "expected mqtt://[user@]host[:port]/topic"),
            ("r@08/a//urs=e&pas=w@]u:secret", "…@08/a//urs=e&pas=…"),
            ("--raw 1280x720:bgr@30", "--raw 1280x720:bgr@30"),
            ("1 of 2 frames; a@b, in/a=b.mp4, é\u{2028}ü", "1 of 2 frames; a@b, in/a=b.mp4, é\u{2028}ü"),
        ] {
            let clean = without_secrets(text);
            assert_eq!(clean, expected, "{text}");
            assert_eq!(without_secrets(&clean), clean, "{text}: again");
        }
    }
}
