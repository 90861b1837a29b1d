//! Certificates and rotations as people read them.

use std::collections::BTreeMap;

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
        let holder = format!("{holder} ({})", short(&root.fingerprint()));
        json!({"role": role, "holder": holder, "expires": expires, "expiresOn": time(expires), "verdict": verdict, "then": role.consequence()})
    });
    format!("{}\n\n{}", rotation(&json!(stored.state)), table(&rows.collect::<Vec<_>>(), now))
}

/// What control planes answer, by their names. Each knows what it issued itself, so their lists are joined.
pub(super) fn answers(answers: &[(String, Value)], now: UnixTime) -> String {
    let steps = |answer: &Value| answer["rotation"]["steps"].as_u64();
    let furthest = answers.iter().map(|(_, answer)| answer).max_by_key(|answer| steps(answer));
    let mut words = rotation(&furthest.map(|answer| answer["rotation"].clone()).unwrap_or_default());
    for (name, answer) in answers {
        if steps(answer) != furthest.and_then(steps) {
            words.push_str(&format!("\n{name} has not seen the latest step yet."));
        }
    }
    let mut rows = joined(answers);
    let roots = furthest.and_then(|answer| answer["rotation"]["roots"].as_array());
    for row in rows.iter_mut().filter(|row| row["role"] == Role::Root.label()) {
        // While one root takes the place of another, both have one name.
        let is_this = |root: &&Value| root["notAfter"] == row["expires"];
        if let Some(id) = roots.into_iter().flatten().find(is_this).and_then(|root| root["id"].as_str()) {
            row["holder"] = format!("{} ({})", text(row, "holder"), short(id)).into();
        }
    }
    format!("{words}\n\n{}", table(&rows, now))
}

/// The certificates of all answers, the first to expire first.
fn joined(answers: &[(String, Value)]) -> Vec<Value> {
    let mut rows: BTreeMap<(String, String, u64), Value> = BTreeMap::new();
    for (name, answer) in answers {
        for row in answer["certificates"].as_array().into_iter().flatten() {
            let (role, expires) = (text(row, "role"), row["expires"].as_u64().unwrap_or_default());
            let mut row = row.clone();
            // Every control plane has a certificate of its own.
            if role == Role::Server.label() && answers.len() > 1 {
                row["holder"] = format!("{} ({name})", text(&row, "holder")).into();
            }
            let holder = text(&row, "holder");
            // A workload renews with whichever control plane it reaches: the last certificate is the one it has.
            let known = if role == Role::Workload.label() { 0 } else { expires };
            let key = (role.to_owned(), holder.to_owned(), known);
            let is_older = |known: &Value| known["expires"].as_u64().unwrap_or_default() < expires;
            if rows.get(&key).is_none_or(is_older) {
                rows.insert(key, row);
            }
        }
    }
    let mut rows: Vec<Value> = rows.into_values().collect();
    rows.sort_by_key(|row| row["expires"].as_u64());
    rows
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// One line about a rotation.
fn rotation(state: &Value) -> String {
    let Ok(State { issuer, phase, requested, .. }) = serde_json::from_value::<State>(state.clone()) else {
        return "The root is plugged in, or there is none: there is nothing to rotate.".to_owned();
    };
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
            let old: Vec<&str> = old.iter().map(|id| short(id)).collect();
            format!(
                "Rotation: root {} issues; {} is trusted until {}{more}",
                short(&issuer),
                old.join(", "),
                time(until)
            )
        }
    }
}

/// Enough of a digest to tell roots apart.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// One line for each row, and below them what breaks, or is broken already, where something is not fine.
fn table(rows: &[Value], now: UnixTime) -> String {
    let header = ["ROLE", "HOLDER", "EXPIRES", "IN", "VERDICT"].map(str::to_owned);
    let row = |row: &Value| {
        let [role, holder, expires, verdict] =
            ["role", "holder", "expiresOn", "verdict"].map(|key| text(row, key).to_owned());
        [role, holder, expires, remaining(row["expires"].as_u64().unwrap_or_default(), now), verdict]
    };
    let all: Vec<[String; 5]> = [header].into_iter().chain(rows.iter().map(row)).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2), width(3)];
    let line = |row: &[String; 5]| {
        let [role, holder, expires, left, verdict] = row;
        let [first, second, third, fourth] = widths;
        format!("{role:<first$}   {holder:<second$}   {expires:<third$}   {left:<fourth$}   {verdict}\n")
    };
    let mut table: String = all.iter().map(line).collect();
    let wrong = rows.iter().filter(|row| text(row, "verdict") != "fine" && !text(row, "then").is_empty());
    for (number, row) in wrong.enumerate() {
        let (holder, verdict, then) = (text(row, "holder"), text(row, "verdict"), text(row, "then"));
        let gap = if number == 0 { "\n" } else { "" };
        table.push_str(&format!("{gap}{holder} is {verdict}: {then}\n"));
    }
    table
}

/// How long until then, in the largest unit of which there are two.
fn remaining(expires: u64, now: UnixTime) -> String {
    let Some(left) = expires.checked_sub(now.as_secs()) else { return "over".to_owned() };
    let units = [("d", 24 * 3600), ("h", 3600), ("m", 60)];
    let unit = units.into_iter().find(|(_, seconds)| left >= 2 * seconds);
    unit.map_or_else(|| format!("{left}s"), |(name, seconds)| format!("{}{name}", left / seconds))
}

fn time(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| seconds.to_string(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn answer_of_a_control_plane_is_a_table() {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_790_000_000));
        let answer = |answer: Value| answers(&[("http://localhost:8080".to_owned(), answer)], now);
        let answered = answer(json!({
            "rotation": {"format": 1, "steps": 3, "issuer": "0123456789abcdef",
                "roots": [{"id": "fedcba9876543210", "notBefore": 1, "notAfter": 1_799_000_000}],
                "phase": {"retiring": {"old": ["fedcba9876543210"], "until": 1_800_000_000}}, "requested": false},
            "certificates": [
                {"role": "server", "holder": "ports", "expires": 1_790_008_000, "expiresOn": "2026-09-21 16:26 UTC",
                    "verdict": "due", "then": "nobody connects"},
                {"role": "root", "holder": "O=cluster.local", "expires": 1_799_000_000,
                    "expiresOn": "2027-01-03 18:13 UTC", "verdict": "fine", "then": "nothing verifies"},
            ],
        }));
        let expected = "Rotation: root 0123456789ab issues; fedcba987654 is trusted until 2027-01-15 08:00 UTC\n\n\
                        ROLE     HOLDER                           EXPIRES                IN     VERDICT\n\
                        server   ports                            2026-09-21 16:26 UTC   2h     due\n\
                        root     O=cluster.local (fedcba987654)   2027-01-03 18:13 UTC   104d   fine\n\n\
                        ports is due: nobody connects\n";
        assert_eq!(answered, expected);
        assert!(answer(json!({"certificates": []})).starts_with("The root is plugged in"));
    }

    #[test]
    fn answers_of_several_control_planes_are_joined() {
        let certificate = |role: &str, holder: &str, expires: u64, verdict: &str| json!({"role": role, "holder": holder, "expires": expires, "expiresOn": time(expires), "verdict": verdict});
        let answer = |steps: u64, workload: u64, verdict: &str| {
            json!({
                "rotation": {"format": 1, "steps": steps, "roots": [], "issuer": "0123456789abcdef", "phase": "stable"},
                "certificates": [
                    certificate("root", "O=cluster.local", 2_000_000_000, "fine"),
                    certificate("server", "TLS ports", 1_950_000_000 + steps, "fine"),
                    certificate("workload", "spiffe://cluster.local/ns/a/sa/b", workload, verdict),
                ],
            })
        };
        // The workload renewed with the second one; what the first one remembers is over.
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_790_000_000));
        let both = [
            ("one".to_owned(), answer(3, 1_700_000_000, "expired")),
            ("two".to_owned(), answer(2, 1_900_000_000, "fine")),
        ];
        let told = answers(&both, now);
        assert!(told.contains("two has not seen the latest step yet."), "{told}");
        let rows: Vec<Vec<&str>> = told
            .lines()
            .skip_while(|line| !line.starts_with("ROLE"))
            .skip(1)
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        let shown: Vec<(&str, &str, &str)> = rows.iter().map(|row| (row[0], row[1], row[4])).collect();
        assert_eq!(
            shown,
            [
                ("workload", "spiffe://cluster.local/ns/a/sa/b", "fine"),
                ("server", "TLS ports (two)", "fine"),
                ("server", "TLS ports (one)", "fine"),
                ("root", "O=cluster.local", "fine"),
            ]
        );
    }
}
