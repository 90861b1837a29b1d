//! Templates made at random: mostly well formed, so that most of them say something.

use proptest::prelude::*;

use super::oracle::Request;
use super::table;

fn literal() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("nil".to_owned()),
        any::<bool>().prop_map(|truth| truth.to_string()),
        (-20i64..200).prop_map(|int| int.to_string()),
        prop::sample::select(vec!["1.5", "0.0", "1e6", "1e-7", "2.50", "0x1f", "'x'", "1e21", "-0.25"])
            .prop_map(str::to_owned),
        prop::sample::select(vec![
            "", "a", "text", "a,b", "A b", "é☺", "10", "1.5", "%d", "x\\ny", "\\t", "b: 1"
        ])
        .prop_map(|text| format!("\"{text}\"")),
    ]
}

fn reference() -> impl Strategy<Value = String> {
    let names = vec![
        ".", ".i", ".f", ".big", ".s", ".e", ".t", ".n", ".z", ".l", ".ls", ".el", ".em", ".m", ".m.a",
        ".m.b", ".m.b.c", ".m.nope", ".u", ".q", ".ml", ".maps", ".missing", ".s.x", "$", "$.m", "$.ls",
    ];
    prop::sample::select(names).prop_map(str::to_owned)
}

/// Functions by how many arguments they like. What is not defined for an argument must fail alike.
const FUNCTIONS: [(&str, usize); 84] = [
    ("len", 1),
    ("not", 1),
    ("print", 2),
    ("println", 1),
    ("html", 1),
    ("js", 1),
    ("urlquery", 1),
    ("and", 2),
    ("or", 2),
    ("eq", 2),
    ("ne", 2),
    ("lt", 2),
    ("le", 2),
    ("gt", 2),
    ("ge", 2),
    ("index", 2),
    ("printf \"%v\"", 1),
    ("printf \"%d|%s\"", 2),
    ("printf \"%q\"", 1),
    ("printf \"%5.1f\"", 1),
    ("printf \"%T\"", 1),
    ("upper", 1),
    ("lower", 1),
    ("title", 1),
    ("trim", 1),
    ("quote", 1),
    ("squote", 1),
    ("trunc 2", 1),
    ("substr 0 2", 1),
    ("contains", 2),
    ("hasPrefix", 2),
    ("replace \"a\" \"b\"", 1),
    ("indent 2", 1),
    ("nindent 1", 1),
    ("cat", 2),
    ("toString", 1),
    ("toStrings", 1),
    ("join \",\"", 1),
    ("splitList \",\"", 1),
    ("split \",\"", 1),
    ("sortAlpha", 1),
    ("int", 1),
    ("int64", 1),
    ("float64", 1),
    ("add", 2),
    ("sub", 2),
    ("mul", 2),
    ("div", 2),
    ("mod", 2),
    ("max", 2),
    ("floor", 1),
    ("ceil", 1),
    ("addf", 2),
    ("mulf", 2),
    ("list", 2),
    ("first", 1),
    ("last", 1),
    ("rest", 1),
    ("initial", 1),
    ("append", 2),
    ("prepend", 2),
    ("reverse", 1),
    ("uniq", 1),
    ("compact", 1),
    ("has", 2),
    ("without", 2),
    ("concat", 2),
    ("dict \"k\"", 1),
    ("get", 2),
    ("hasKey", 2),
    ("default", 2),
    ("empty", 1),
    ("coalesce", 2),
    ("ternary 1 2", 1),
    ("toJson", 1),
    ("toYaml", 1),
    ("typeOf", 1),
    ("kindOf", 1),
    ("deepEqual", 2),
    ("b64enc", 1),
    ("snakecase", 1),
    ("camelcase", 1),
    ("regexFindAll \"[a-z]\"", 2),
    ("deepCopy", 1),
];

fn operand() -> BoxedStrategy<String> {
    prop_oneof![3 => reference(), 2 => literal()].boxed()
}

fn expression() -> BoxedStrategy<String> {
    operand()
        .prop_recursive(3, 12, 3, |inner| {
            let argument = prop_oneof![
                2 => operand(),
                1 => inner.clone().prop_map(|inner| format!("({inner})")),
            ];
            let call = (prop::sample::select(FUNCTIONS.to_vec()), prop::collection::vec(argument, 3))
                .prop_map(|((name, count), args)| {
                    let args: Vec<String> = args.into_iter().take(count).collect();
                    format!("{name} {}", args.join(" "))
                });
            let piped = (inner, prop::sample::select(FUNCTIONS.to_vec()), operand()).prop_map(
                |(inner, (name, count), arg)| {
                    if count > 1 { format!("{inner} | {name} {arg}") } else { format!("{inner} | {name}") }
                },
            );
            prop_oneof![call, piped]
        })
        .boxed()
}

fn block() -> BoxedStrategy<String> {
    let text = prop::sample::select(vec!["a", " ", "\n", "x\n  y", "{", "}", "é"]).prop_map(str::to_owned);
    let open = || prop::sample::select(vec!["{{", "{{- "]);
    let close = || prop::sample::select(vec!["}}", " -}}"]);
    let action = (open(), expression(), close())
        .prop_map(|(open, expression, close)| format!("{open}{expression}{close}"));
    let leaf = prop_oneof![1 => text, 4 => action];
    leaf.prop_recursive(3, 16, 4, move |inner| {
        let body = prop::collection::vec(inner.clone(), 1..3).prop_map(|parts| parts.concat());
        let controls = vec!["if", "with", "range", "range $k, $v :=", "with $w :=", "if $c :="];
        let branch =
            (prop::sample::select(controls), expression(), body.clone(), prop::option::of(body.clone()))
                .prop_map(|(control, expression, body, otherwise)| {
                    let otherwise = otherwise.map(|body| format!("{{{{else}}}}{body}")).unwrap_or_default();
                    format!("{{{{{control} {expression}}}}}{body}{otherwise}{{{{end}}}}")
                });
        let sequence = prop::collection::vec(inner, 1..4).prop_map(|parts| parts.concat());
        let assigned = (expression(), body).prop_map(|(expression, body)| {
            format!("{{{{$a := {expression}}}}}{body}{{{{$a}}}}{{{{$a = 1}}}}{{{{$a}}}}")
        });
        prop_oneof![3 => branch, 2 => sequence, 1 => assigned]
    })
    .boxed()
}

/// A template, with one of the rules for missing keys.
pub(crate) fn request() -> impl Strategy<Value = Request> {
    (block(), prop::sample::select(vec!["", "zero", "error"]))
        .prop_map(|(template, missing)| Request { missing, ..Request::new(template, &table::data()) })
}
