//! The names that may stand in `\p{…}`: general categories, their long names, and scripts (Unicode 15).

/// Whether `name` is a known category or script. Letter case, blanks, hyphens and underscores do not matter.
pub(super) fn is_class_name(name: &str) -> bool {
    NAMES.binary_search(&canonical(name).as_str()).is_ok()
}

/// Canonical spelling of a property: one capital, then small letters, without separators.
fn canonical(name: &str) -> String {
    let letters = name.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
    let cased = |(index, c): (usize, char)| match index {
        0 => c.to_ascii_uppercase(),
        _ => c.to_ascii_lowercase(),
    };
    letters.enumerate().map(cased).collect()
}

/// Sorted, in canonical spelling.
#[rustfmt::skip]
const NAMES: [&str; 246] = [
    "Adlam", "Ahom", "Anatolianhieroglyphs", "Any", "Arabic", "Armenian", "Ascii", "Assigned", "Avestan",
    "Balinese", "Bamum", "Bassavah", "Batak", "Bengali", "Bhaiksuki", "Bopomofo", "Brahmi", "Braille",
    "Buginese", "Buhid", "C", "Canadianaboriginal", "Carian", "Casedletter", "Caucasianalbanian", "Cc",
    "Cf", "Chakma", "Cham", "Cherokee", "Chorasmian", "Closepunctuation", "Cn", "Cntrl", "Co",
    "Combiningmark", "Common", "Connectorpunctuation", "Control", "Coptic", "Cs", "Cuneiform",
    "Currencysymbol", "Cypriot", "Cyprominoan", "Cyrillic", "Dashpunctuation", "Decimalnumber", "Deseret",
    "Devanagari", "Digit", "Divesakuru", "Dogra", "Duployan", "Egyptianhieroglyphs", "Elbasan", "Elymaic",
    "Enclosingmark", "Ethiopic", "Finalpunctuation", "Format", "Georgian", "Glagolitic", "Gothic",
    "Grantha", "Greek", "Gujarati", "Gunjalagondi", "Gurmukhi", "Han", "Hangul", "Hanifirohingya",
    "Hanunoo", "Hatran", "Hebrew", "Hiragana", "Imperialaramaic", "Inherited", "Initialpunctuation",
    "Inscriptionalpahlavi", "Inscriptionalparthian", "Javanese", "Kaithi", "Kannada", "Katakana", "Kawi",
    "Kayahli", "Kharoshthi", "Khitansmallscript", "Khmer", "Khojki", "Khudawadi", "L", "Lao", "Latin",
    "Lc", "Lepcha", "Letter", "Letternumber", "Limbu", "Lineara", "Linearb", "Lineseparator", "Lisu", "Ll",
    "Lm", "Lo", "Lowercaseletter", "Lt", "Lu", "Lycian", "Lydian", "M", "Mahajani", "Makasar", "Malayalam",
    "Mandaic", "Manichaean", "Marchen", "Mark", "Masaramgondi", "Mathsymbol", "Mc", "Me", "Medefaidrin",
    "Meeteimayek", "Mendekikakui", "Meroiticcursive", "Meroitichieroglyphs", "Miao", "Mn", "Modi",
    "Modifierletter", "Modifiersymbol", "Mongolian", "Mro", "Multani", "Myanmar", "N", "Nabataean",
    "Nagmundari", "Nandinagari", "Nd", "Newa", "Newtailue", "Nko", "Nl", "No", "Nonspacingmark", "Number",
    "Nushu", "Nyiakengpuachuehmong", "Ogham", "Olchiki", "Oldhungarian", "Olditalic", "Oldnortharabian",
    "Oldpermic", "Oldpersian", "Oldsogdian", "Oldsoutharabian", "Oldturkic", "Olduyghur",
    "Openpunctuation", "Oriya", "Osage", "Osmanya", "Other", "Otherletter", "Othernumber",
    "Otherpunctuation", "Othersymbol", "P", "Pahawhhmong", "Palmyrene", "Paragraphseparator", "Paucinhau",
    "Pc", "Pd", "Pe", "Pf", "Phagspa", "Phoenician", "Pi", "Po", "Privateuse", "Ps", "Psalterpahlavi",
    "Punct", "Punctuation", "Rejang", "Runic", "S", "Samaritan", "Saurashtra", "Sc", "Separator",
    "Sharada", "Shavian", "Siddham", "Signwriting", "Sinhala", "Sk", "Sm", "So", "Sogdian", "Sorasompeng",
    "Soyombo", "Spaceseparator", "Spacingmark", "Sundanese", "Surrogate", "Sylotinagri", "Symbol",
    "Syriac", "Tagalog", "Tagbanwa", "Taile", "Taitham", "Taiviet", "Takri", "Tamil", "Tangsa", "Tangut",
    "Telugu", "Thaana", "Thai", "Tibetan", "Tifinagh", "Tirhuta", "Titlecaseletter", "Toto", "Ugaritic",
    "Unassigned", "Uppercaseletter", "Vai", "Vithkuqi", "Wancho", "Warangciti", "Yezidi", "Yi", "Z",
    "Zanabazarsquare", "Zl", "Zp", "Zs",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_canonical() {
        assert!(NAMES.is_sorted());
        assert!(NAMES.iter().all(|name| canonical(name) == *name));
    }

    #[test]
    fn lookup_ignores_case_and_separators() {
        for name in ["L", "lu", "Greek", "Old_Italic", "old italic", "uppercase-letter", "any", "LC"] {
            assert!(is_class_name(name), "{name}");
        }
        for name in ["", "Foo", "Greekish", "sc=Greek"] {
            assert!(!is_class_name(name), "{name}");
        }
    }
}
