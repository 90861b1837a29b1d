//! A Wasm module, made where no compiler for one is at hand.

/// Assembles a module of the proxy-wasm interface that adds a header to responses. As text it would read:
///
/// ```wat
/// (module
///   (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
///   (memory (export "memory") 1)
///   (data (i32.const 0) "<name><value>")
///   (func (export "proxy_abi_version_0_2_1"))
///   (func (export "malloc") (param i32) (result i32) (i32.const 1024))
///   (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
///     (drop (call $add (i32.const 2) (i32.const 0) (i32.const <name length>)
///                      (i32.const <name length>) (i32.const <value length>)))
///     (i32.const 0)))
/// ```
pub fn wasm_module(name: &str, value: &str) -> Vec<u8> {
    const I32: u8 = 0x7f;
    let constant = |number: usize| [vec![0x41], signed(number)].concat();
    let body = |code: &[u8]| sized(&[&[0], code, &[0x0b]].concat());
    let add = [
        constant(2),
        constant(0),
        constant(name.len()),
        constant(name.len()),
        constant(value.len()),
        vec![0x10, 0, 0x1a],
        constant(0),
    ]
    .concat();
    let sections = [
        (
            1,
            list(&[
                vec![0x60, 5, I32, I32, I32, I32, I32, 1, I32],
                vec![0x60, 0, 0],
                vec![0x60, 1, I32, 1, I32],
                vec![0x60, 3, I32, I32, I32, 1, I32],
            ]),
        ),
        (2, list(&[[text("env"), text("proxy_add_header_map_value"), vec![0, 0]].concat()])),
        (3, list(&[vec![1], vec![2], vec![3]])),
        (5, list(&[vec![0, 1]])),
        (
            7,
            list(&[
                [text("memory"), vec![2, 0]].concat(),
                [text("proxy_abi_version_0_2_1"), vec![0, 1]].concat(),
                [text("malloc"), vec![0, 2]].concat(),
                [text("proxy_on_response_headers"), vec![0, 3]].concat(),
            ]),
        ),
        (10, list(&[body(&[]), body(&constant(1024)), body(&add)])),
        (11, list(&[[vec![0], constant(0), vec![0x0b], text(&format!("{name}{value}"))].concat()])),
    ];
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    for (id, content) in sections {
        module.push(id);
        module.extend(sized(&content));
    }
    module
}

fn text(text: &str) -> Vec<u8> {
    sized(text.as_bytes())
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [unsigned(bytes.len()), bytes.to_vec()].concat()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [unsigned(items.len()), items.concat()].concat()
}

/// A number in groups of seven bits, the lowest first.
fn unsigned(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let group = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        if number == 0 {
            bytes.push(group);
            return bytes;
        }
        bytes.push(group | 0x80);
    }
}

/// As [`unsigned`], with room for a sign.
fn signed(number: usize) -> Vec<u8> {
    let mut bytes = unsigned(number);
    if let Some(last) = bytes.last_mut()
        && *last & 0x40 != 0
    {
        *last |= 0x80;
        bytes.push(0);
    }
    bytes
}
