//! Masks secrets in values of the configuration: those that belong where they are, and those that were pasted where they
//! do not.

use roundhouse_shared::secret::masked_url;

pub(super) const MASK: &str = "***";

/// What a setting, a parameter or an argument is called that holds a secret.
const SECRET_NAMES: [&str; 7] = ["password", "passwd", "key", "token", "secret", "sig", "authorization"];

/// What keys of providers begin with.
const KEY_PREFIXES: [&str; 20] = [
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "gsk_",
    "hf_",
    "r8_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xox",
    "xai-",
    "AIza",
    "AKIA",
    "ASIA",
    "eyJ",
];

/// A URL without its secrets: the user's name and password, and parameters that are called like one.
pub(crate) fn shown_url(url: &str) -> String {
    let url = masked_url(url);
    let Some((address, query)) = url.split_once('?') else { return url };
    let masked = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}={MASK}"),
        _ => pair.to_owned(),
    });
    format!("{address}?{}", masked.collect::<Vec<_>>().join("&"))
}

/// The name of an environment variable as it may be shown. A key that was pasted in its place is not.
pub(crate) fn shown_variable(name: &str) -> &str {
    let like_a_name = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let begins = name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    let is_name = begins && name.len() <= 64 && name.bytes().all(like_a_name) && !looks_like_key(name);
    if is_name { name } else { MASK }
}

/// Whether a text looks like a key. Many keys have only characters that the name of a variable may have too.
pub(super) fn looks_like_key(text: &str) -> bool {
    // The shortest text with a known prefix, and without one, that is taken for a key.
    const WITH_PREFIX: usize = 12;
    const WITHOUT: usize = 20;
    let has = |text: &str, is: fn(&u8) -> bool| text.bytes().any(|byte| is(&byte));
    let (digit, upper) = (has(text, u8::is_ascii_digit), has(text, u8::is_ascii_uppercase));
    // Words and numbers of a name are short, and its letters have one case.
    let long = |part: &str| {
        part.len() >= WITHOUT && has(part, u8::is_ascii_digit) && has(part, u8::is_ascii_alphabetic)
    };
    let known = KEY_PREFIXES.iter().any(|prefix| text.starts_with(prefix));
    known && text.len() >= WITH_PREFIX
        || text.len() >= WITHOUT && digit && upper && has(text, u8::is_ascii_lowercase)
        || text.split('_').any(long)
}

/// A value of the configuration without its secrets, however deep they are.
pub(super) fn without_secrets(key: &str, value: toml::Value) -> toml::Value {
    match value {
        toml::Value::String(name) if key == "api_key_env" => shown_variable(&name).into(),
        toml::Value::String(_) if is_secret(key) => MASK.into(),
        toml::Value::String(text) if text.contains("://") || text.contains('@') => shown_url(&text).into(),
        toml::Value::Array(items) => arguments(items).into(),
        toml::Value::Table(table) => table
            .into_iter()
            .map(|(key, value)| {
                let value = without_secrets(&key, value);
                (key, value)
            })
            .collect::<toml::Table>()
            .into(),
        other => other,
    }
}

/// Items of a list, which may be arguments of a program: `--token X`, `--token=X`, `TOKEN=X`, `Authorization: X`.
fn arguments(items: Vec<toml::Value>) -> Vec<toml::Value> {
    let mut is_value = false;
    let masked = items.into_iter().map(|item| {
        let toml::Value::String(text) = item else {
            is_value = false;
            return without_secrets("", item);
        };
        let of_secret = std::mem::take(&mut is_value) && !text.starts_with('-');
        if of_secret {
            return MASK.into();
        }
        if let Some((name, _)) = text.split_once(['=', ':']).filter(|(name, _)| is_secret(name)) {
            let sign = &text[name.len()..=name.len()];
            return format!("{name}{sign}{MASK}").into();
        }
        is_value = text.starts_with('-') && is_secret(&text);
        without_secrets("", text.into())
    });
    masked.collect()
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_wherever_they_were_put() {
        let table: toml::Table = toml::from_str(
            "base_url = 'https://u:hunter2@h/v1?api_key=hunter2&x=1'\nother = 'https://hunter2@h'\nbad = 'u:hunter2@h/v1'\n\
             api_key_env = 'hunter2'\ncommand = ['npx', 'server', '--token', 'hunter2', '--api-key=hunter2', '-v', \
             'TOKEN=hunter2', 'Authorization: Bearer hunter2', '.']\n[extra_body]\nmax_tokens = 7\n\
             deep = { list = [{ client_secret = 'hunter2' }] }",
        )
        .unwrap();

        let shown = without_secrets("", table.into()).to_string();

        assert!(!shown.contains("hunter2"), "{shown}");
        for kept in ["h/v1", "x=1", "npx", "--token", "--api-key=***", "\"-v\"", "max_tokens = 7", "\".\""] {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
    }

    #[test]
    fn names_of_variables_are_shown_and_keys_are_not() {
        assert_eq!(shown_variable("OPENAI_API_KEY"), "OPENAI_API_KEY");
        for key in ["sk-abc", "sk_live_abc", "", "7KEY", "A B", "AKIAIOSFODNN7EXAMPLE"] {
            assert_eq!(shown_variable(key), MASK, "{key}");
        }
    }

    #[test]
    fn keys_are_told_from_names_of_variables() {
        for key in [
            "sk_live_abcdefgh",
            "sk-ant-api03-abcdef",
            "ghp_abcdefghijklmnop",
            "AIzaSyA_abcdefgh",
            "AKIAIOSFODNN7EXAMPLE",
            "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ",
            "a123456789abcdef0123456789abcdef",
            "Xk3_dPq92_LmvR7_tZaQ",
        ] {
            assert!(looks_like_key(key), "{key}");
        }
        for name in [
            "OPENAI_API_KEY",
            "openai_api_key_2",
            "SK_LIVE_KEY",
            "AZURE_OPENAI_API_KEY_EASTUS2_PRODUCTION",
            "my_company_2024_openai_api_key",
            "OpenAiApiKeyOfProduction",
            "",
        ] {
            assert!(!looks_like_key(name), "{name}");
        }
    }
}
