//! A tool's result as text, which is what models get.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

use crate::tools::ToolOutcome;
use crate::tools::bounded::Bounded;

/// The parts one after the other, of bounded length. What is no text is described.
pub(super) fn outcome(result: CallToolResult) -> ToolOutcome {
    let mut text = Bounded::default();
    if let Some(structured) = result.structured_content.filter(|_| result.content.is_empty()) {
        text.push(&structured.to_string());
    }
    for (index, part) in result.content.iter().enumerate() {
        if index > 0 {
            text.push("\n");
        }
        push(&mut text, part);
    }
    let text = text.finish();
    let text = if text.is_empty() { "[no output]".to_owned() } else { text };
    ToolOutcome { success: result.is_error != Some(true), text }
}

fn push(text: &mut Bounded, part: &ContentBlock) {
    match part {
        ContentBlock::Text(part) => text.push(&part.text),
        ContentBlock::Image(part) => text.push(&described("image", Some(&part.mime_type), &part.data)),
        ContentBlock::Audio(part) => text.push(&described("audio", Some(&part.mime_type), &part.data)),
        ContentBlock::Resource(part) => match &part.resource {
            ResourceContents::TextResourceContents { uri, text: content, .. } => {
                text.push(&format!("[resource {uri}]\n"));
                text.push(content);
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                text.push(&described(&format!("resource {uri}"), mime_type.as_deref(), blob));
            }
            _ => text.push("[a resource that cannot be shown]"),
        },
        ContentBlock::ResourceLink(link) => {
            text.push(&format!("[link to the resource {}: {}]", link.name, link.uri));
        }
        _ => text.push("[a part that cannot be shown]"),
    }
}

/// Base64 is no use to a model that takes text.
fn described(what: &str, mime_type: Option<&str>, base64: &str) -> String {
    let bytes = base64.trim_end_matches('=').len() / 4 * 3 + base64.trim_end_matches('=').len() % 4 * 3 / 4;
    format!("[{what}, {}, {bytes} bytes, not shown]", mime_type.unwrap_or("of unknown type"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(result: serde_json::Value) -> ToolOutcome {
        outcome(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn parts_are_joined_and_what_is_no_text_is_described() {
        let content = json!([
            { "type": "text", "text": "one" },
            { "type": "image", "mimeType": "image/png", "data": "QUJDRA==" },
            { "type": "resource", "resource": { "uri": "demo://1", "text": "inside" } },
            { "type": "resource", "resource": { "uri": "demo://2", "mimeType": "x/y", "blob": "QUJD" } },
            { "type": "resource_link", "uri": "demo://3", "name": "three" },
        ]);
        let shown = "one\n[image, image/png, 4 bytes, not shown]\n[resource demo://1]\ninside\n\
                     [resource demo://2, x/y, 3 bytes, not shown]\n[link to the resource three: demo://3]";
        assert_eq!(rendered(json!({ "content": content })), ToolOutcome::success(shown));
    }

    #[test]
    fn errors_are_failures_and_nothing_is_said() {
        let error = json!({ "content": [{ "type": "text", "text": "no" }], "isError": true });
        assert_eq!(rendered(error), ToolOutcome::failure("no"));
        assert_eq!(rendered(json!({ "content": [] })), ToolOutcome::success("[no output]"));
        let structured = json!({ "content": [], "structuredContent": { "a": 1 } });
        assert_eq!(rendered(structured), ToolOutcome::success("{\"a\":1}"));
    }

    #[test]
    fn long_texts_are_bounded() {
        let long = json!({ "content": [{ "type": "text", "text": "x".repeat(1 << 20) }] });
        assert!(rendered(long).text.len() < 70_000);
    }
}
