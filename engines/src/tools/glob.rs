//! Which files a call is about.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use super::files::Problem;

/// What a model is told of the `glob` field.
pub(super) const DESCRIPTION: &str = "Only files that match, such as `*.rs` (a name, in any directory) or \
                                      `src/**/*.rs` (a path below `path`).";

/// A pattern, or none: then every file matches.
#[derive(Debug)]
pub(super) struct Glob(Option<GlobMatcher>);

impl Glob {
    pub(super) fn new(pattern: Option<&str>) -> Result<Self, Problem> {
        let Some(pattern) = pattern else { return Ok(Self(None)) };
        let pattern = pattern.trim_start_matches("./");
        // As in `.gitignore`: a pattern without a slash is about the name.
        let anywhere = if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") };
        match GlobBuilder::new(&anywhere).literal_separator(true).build() {
            Ok(glob) => Ok(Self(Some(glob.compile_matcher()))),
            Err(error) => Err(Problem::new(format!("The input is not valid: `glob`: {}.", error.kind()))),
        }
    }

    pub(super) fn matches(&self, path: &Path) -> bool {
        self.0.as_ref().is_none_or(|glob| glob.is_match(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_about_the_name_or_about_the_path() {
        for (pattern, path, matches) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "src/a/b.rs", true),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/a/b.rs", false),
            ("./src/**/*.rs", "src/a/b.rs", true),
            ("*.{rs,toml}", "Cargo.toml", true),
            ("*.rs", "a.rsx", false),
        ] {
            let glob = Glob::new(Some(pattern)).unwrap();
            assert_eq!(glob.matches(Path::new(path)), matches, "{pattern} {path}");
        }
        assert!(Glob::new(None).unwrap().matches(Path::new("a")));
        assert!(Glob::new(Some("[")).is_err());
    }
}
