//! Certificates and rotations as people read them.

use canopus_identity::forecast::{Entry, Role};
use canopus_identity::rotation::{Phase, State, Stored};
use jiff::Timestamp;
use rustls_pki_types::UnixTime;
use serde_json::{Value, json};

/// What is in a store.
pub(super) fn stored(stored: &Stored, now: UnixTime) -> String {
    let rows = stored.roots.iter().map(|root| {
        let Entry { role, holder, expires, verdict } =
            Entry::new(Role::Root, &root.subject_text(), root, now);
        json!({"role": role, "holder": holder, "expiresOn": time(expires), "verdict": verdict})
    });
    format!("{}\n\n{}", rotation(&json!(stored.state)), table(&rows.collect::<Vec<_>>()))
}

/// What a control plane answers.
pub(super) fn answer(answer: &Value) -> String {
    let rows = answer["certificates"].as_array().map(Vec::as_slice).unwrap_or_default();
    format!("{}\n\n{}", rotation(&answer["rotation"]), table(rows))
}

/// One line about a rotation.
fn rotation(state: &Value) -> String {
    let Ok(State { issuer, phase, requested, .. }) = serde_json::from_value::<State>(state.clone()) else {
        return "The root is plugged in, or there is none: there is nothing to rotate.".to_owned();
    };
    let short = |id: &str| id.get(..12).unwrap_or(id).to_owned();
    let more = if requested { "; another rotation was asked for" } else { "" };
    match phase {
        Phase::Stable if requested => {
            format!("Rotation: asked for, about to begin (issuer {})", short(&issuer))
        }
        Phase::Stable => format!("Rotation: none under way (issuer {})", short(&issuer)),
        Phase::Distributing { next, since } => format!(
            "Rotation: distributing root {} since {}; {} still issues{more}",
            short(&next),
            time(since),
            short(&issuer)
        ),
        Phase::Retiring { old, until } => {
            let old: Vec<String> = old.iter().map(|id| short(id)).collect();
            format!(
                "Rotation: root {} issues; {} is trusted until {}{more}",
                short(&issuer),
                old.join(", "),
                time(until)
            )
        }
    }
}

fn table(rows: &[Value]) -> String {
    let header = ["ROLE", "HOLDER", "EXPIRES", "VERDICT"].map(str::to_owned);
    let cell = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| ["role", "holder", "expiresOn", "verdict"].map(|key| cell(row, key));
    let all: Vec<[String; 4]> = [header].into_iter().chain(rows.iter().map(row)).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    let line = |row: &[String; 4]| {
        let [role, holder, expires, verdict] = row;
        let [first, second, third] = widths;
        format!("{role:<first$}   {holder:<second$}   {expires:<third$}   {verdict}\n")
    };
    all.iter().map(line).collect()
}

fn time(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| seconds.to_string(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_of_a_control_plane_is_a_table() {
        let answered = answer(&json!({
            "rotation": {"format": 1, "steps": 3, "roots": [], "issuer": "0123456789abcdef",
                "phase": {"retiring": {"old": ["fedcba9876543210"], "until": 1_800_000_000}}, "requested": false},
            "certificates": [{"role": "root", "holder": "O=cluster.local", "expiresOn": "2036-01-01 00:00 UTC", "verdict": "fine"}],
        }));
        let expected = "Rotation: root 0123456789ab issues; fedcba987654 is trusted until 2027-01-15 08:00 UTC\n\n\
                        ROLE   HOLDER            EXPIRES                VERDICT\n\
                        root   O=cluster.local   2036-01-01 00:00 UTC   fine\n";
        assert_eq!(answered, expected);
        assert!(answer(&json!({"certificates": []})).starts_with("The root is plugged in"));
    }
}
