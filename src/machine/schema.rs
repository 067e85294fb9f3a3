//! A report that must be JSON of a given shape: whether the schema is one, and what is wrong with a report.
//!
//! Deliberately absent: fetching what a schema refers to elsewhere; such a schema is refused. And mending a report: the
//! model is told what is wrong and writes it again.

use serde_json::Value;

/// A schema travels in the header of a spec, which has room for 64 KiB of YAML in all.
pub(crate) const LIMIT: u64 = 32 * 1024;

/// What a model is told at once; the rest mostly follows from the first.
const ERRORS: usize = 8;
/// Bytes of one error: it repeats the value, which may be the whole report.
const ERROR_BYTES: usize = 300;

/// Why a schema cannot be used, if it cannot.
pub(crate) fn check(schema: &Value) -> Result<(), String> {
    if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
        return Err("a schema is a JSON object".to_owned());
    }
    jsonschema::validator_for(schema).map(drop).map_err(|error| at(error.instance_path().as_str(), &error.to_string()))
}

/// Why `text` is not what `schema` asks for, if it is not: each fault with its place in the report.
pub(crate) fn breach(text: &str, schema: &Value) -> Option<String> {
    let value: Value = match serde_json::from_str(unfenced(text)) {
        Ok(value) => value,
        Err(error) => return Some(format!("it is not JSON: {error}")),
    };
    let validator = match jsonschema::validator_for(schema) {
        Ok(validator) => validator,
        // Checked before the start; only a brief written by hand comes here.
        Err(error) => return Some(format!("the schema itself is wrong: {error}")),
    };
    let mut errors = validator.iter_errors(&value);
    let faults: Vec<String> =
        errors.by_ref().take(ERRORS).map(|error| at(error.instance_path().as_str(), &error.to_string())).collect();
    let more = if errors.next().is_some() { "; and more" } else { "" };
    if faults.is_empty() { None } else { Some(format!("{}{more}", faults.join("; "))) }
}

fn at(path: &str, error: &str) -> String {
    let place = if path.is_empty() { "/" } else { path };
    format!("at `{}`: {}", crate::text::prefix(place, ERROR_BYTES), crate::text::one_line(error, ERROR_BYTES))
}

/// The JSON of an answer that put it into a code fence, as models do whatever they are told.
pub(crate) fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix("```json").or_else(|| text.strip_prefix("```"));
    inner.and_then(|inner| inner.strip_suffix("```")).unwrap_or(text).trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_is_held_against_the_whole_schema_and_each_fault_has_its_place() {
        let schema = json!({
            "type": "object",
            "required": ["name", "lines"],
            "additionalProperties": false,
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}
            },
            "$defs": {"line": {"type": "integer", "minimum": 1}}
        });
        assert_eq!(check(&schema), Ok(()));
        assert_eq!(breach("```json\n{\"name\": \"a\", \"lines\": [1, 2]}\n```", &schema), None);
        let told = breach(r#"{"name": "", "lines": [1, "x", 0], "more": 1}"#, &schema).unwrap();
        for place in ["at `/name`: ", "at `/lines/1`: ", "at `/lines/2`: ", "more"] {
            assert!(told.contains(place), "{place}: {told}");
        }
        assert!(breach("{\"name\": \"a\"}", &schema).unwrap().contains("\"lines\" is a required property"));
        assert!(breach("here it is: {}", &schema).unwrap().starts_with("it is not JSON: "));
    }

    #[test]
    fn what_a_model_is_told_stays_short() {
        let schema = json!({"type": "array", "items": {"type": "integer"}});
        let long = json!(vec!["x".repeat(10_000); 50]).to_string();
        let told = breach(&long, &schema).unwrap();
        assert!(told.len() < 5_000 && told.ends_with("; and more"), "{}", told.len());
    }

    #[test]
    fn a_schema_that_is_none_or_lies_elsewhere_is_refused() {
        for schema in [
            json!([]),
            json!("x"),
            json!({"type": "nothing"}),
            json!({"$ref": "https://schemas.example/x.json"}),
            json!({"$ref": "file:///etc/hostname"}),
            json!({"$ref": "#/$defs/missing"}),
        ] {
            assert!(check(&schema).is_err(), "{schema}");
        }
        assert_eq!(check(&json!(true)), Ok(()));
    }
}
