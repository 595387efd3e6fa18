//! Names of tools that model servers take: `server__tool`, of letters, digits, `_` and `-`, at most 64.

use std::collections::HashSet;

const MAX_NAME: usize = 64;
/// Of a mark: `_` and eight digits.
const MARK: usize = 9;

/// A name for each tool, in their order. What has to be cut, or would be a name twice, ends with a mark made of the
/// whole name, so that a tool keeps its name whatever else is listed.
pub(super) fn wire_names<'a>(server: &str, tools: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    tools
        .map(|tool| {
            let whole = format!("{server}__{tool}");
            let plain = clean(&whole);
            let name = if plain.len() <= MAX_NAME && !taken.contains(&plain) {
                plain
            } else {
                let kept = plain.len().min(MAX_NAME - MARK);
                format!("{}_{:08x}", &plain[..kept], fingerprint(&whole))
            };
            taken.insert(name.clone());
            name
        })
        .collect()
}

/// Everything else becomes `_`, so that the result is ASCII.
fn clean(name: &str) -> String {
    let is_taken = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    name.chars().map(|c| if is_taken(c) { c } else { '_' }).collect()
}

/// FNV-1a: the same for all time, since conversations hold names.
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_model_servers_take() {
        let (long, longer) = ("t".repeat(58), "t".repeat(59));
        for (server, tool, name) in [
            ("files", "read", "files__read".to_owned()),
            ("my-files", "read_file-2", "my-files__read_file-2".to_owned()),
            ("files", "notes/read.all", "files__notes_read_all".to_owned()),
            ("files", "größe", "files__gr__e".to_owned()),
            ("files", "", "files__".to_owned()),
            ("host", &long, format!("host__{long}")),
            (
                "host",
                &longer,
                format!("host__{}_{:08x}", "t".repeat(49), fingerprint(&format!("host__{longer}"))),
            ),
        ] {
            assert_eq!(wire_names(server, [tool].into_iter()), [name], "{server} {tool}");
        }
    }

    #[test]
    fn names_differ_where_only_their_lost_parts_do() {
        let (one, two) = (format!("{}1", "t".repeat(80)), format!("{}2", "t".repeat(80)));
        let names = wire_names("s", ["a.b", "a/b", "a_b", &one, &two].into_iter());
        let different: HashSet<_> = names.iter().collect();
        assert_eq!(different.len(), 5, "{names:?}");
        assert_eq!(names[0], "s__a_b");
        assert!(names.iter().all(|name| name.len() <= MAX_NAME), "{names:?}");
    }

    #[test]
    fn marks_stay_the_same() {
        assert_eq!(fingerprint(""), 0x811c_9dc5);
        assert_eq!(fingerprint("a"), 0xe40c_292c);
    }
}
