//! Files that come with a message: what they are is decided by their content, not by what the client says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roundhouse_shared::problem::Problem;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Most files with one message.
const FILES_MOST: usize = 16;
/// Longest name.
const NAME_MOST: usize = 200;
/// Largest file, decoded.
const BYTES_MOST: usize = 5 << 20;

/// A file that comes with a message.
#[derive(Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AttachmentRequest {
    /// Its name.
    name: String,
    /// Its media type: a PNG, JPEG, GIF or `WebP` image, or text.
    media_type: String,
    /// Its content in base64.
    data: String,
}

/// The files as they are stored with the message; `None` where there are none.
pub(crate) fn stored(files: &[AttachmentRequest]) -> Result<Option<Value>, Problem> {
    if files.is_empty() {
        return Ok(None);
    }
    if FILES_MOST < files.len() {
        return Err(Problem::field("attachments", format!("must be at most {FILES_MOST} files")));
    }
    let file = |(n, file): (usize, &AttachmentRequest)| {
        one(file).map_err(|(field, why)| Problem::field(format!("attachments[{n}].{field}"), why))
    };
    Ok(Some(Value::Array(files.iter().enumerate().map(file).collect::<Result<_, _>>()?)))
}

fn one(file: &AttachmentRequest) -> Result<Value, (&'static str, String)> {
    let name = file.name.trim();
    if name.is_empty() || NAME_MOST < name.chars().count() || name.chars().any(char::is_control) {
        return Err(("name", format!("must have 1 to {NAME_MOST} printable characters")));
    }
    let bytes = STANDARD.decode(&file.data).map_err(|error| ("data", format!("is not base64: {error}")))?;
    if bytes.is_empty() || BYTES_MOST < bytes.len() {
        return Err(("data", format!("must be 1 to {BYTES_MOST} bytes")));
    }
    let claimed = file.media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let media_type = match (kind(&bytes), claimed.as_str()) {
        (Some(image), claimed) if image == claimed || claimed == "image/jpg" && image == "image/jpeg" => {
            image
        }
        (Some(image), _) => return Err(("mediaType", format!("the content is {image}"))),
        (None, claimed) if claimed.starts_with("text/") || claimed == "application/json" => {
            let text = std::str::from_utf8(&bytes).is_ok_and(|text| !text.contains('\0'));
            if text { claimed } else { return Err(("data", "is not UTF-8 text".to_owned())) }
        }
        (None, _) => return Err(("mediaType", "must be a PNG, JPEG, GIF or WebP image, or text".to_owned())),
    };
    Ok(json!({ "name": name, "mediaType": media_type, "size": bytes.len(), "data": STANDARD.encode(&bytes) }))
}

/// What an image says of itself with its first bytes.
fn kind(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(media_type: &str, bytes: &[u8]) -> Result<String, String> {
        let file = AttachmentRequest {
            name: "a".to_owned(),
            media_type: media_type.to_owned(),
            data: STANDARD.encode(bytes),
        };
        stored(&[file])
            .map(|files| files.unwrap()[0]["mediaType"].as_str().unwrap().to_owned())
            .map_err(|problem| problem.fields[0].path.clone())
    }

    #[test]
    fn the_content_decides() {
        let png = b"\x89PNG\r\n\x1a\nrest";
        assert_eq!(check("image/png", png), Ok("image/png".to_owned()));
        assert_eq!(check("image/jpg", b"\xff\xd8\xff\xe0"), Ok("image/jpeg".to_owned()));
        assert_eq!(check("text/plain; charset=utf-8", b"hi"), Ok("text/plain".to_owned()));
        assert_eq!(check("image/jpeg", png), Err("attachments[0].mediaType".to_owned()));
        assert_eq!(check("text/plain", png), Err("attachments[0].mediaType".to_owned()));
        assert_eq!(check("image/png", b"no image"), Err("attachments[0].mediaType".to_owned()));
        assert_eq!(check("text/plain", b"\xff\xfe"), Err("attachments[0].data".to_owned()));
        assert_eq!(check("text/plain", b"a\0b"), Err("attachments[0].data".to_owned()));
        assert_eq!(check("text/plain", b""), Err("attachments[0].data".to_owned()));
    }
}
