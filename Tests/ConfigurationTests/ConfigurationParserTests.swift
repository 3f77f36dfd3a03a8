import Support
import Testing

@testable import Configuration

/// Every value of a tree by name, in words: its kind, its content, and where key and value stand.
private func flat(_ value: ConfigurationValue) -> [String] {
    let place = "\(value.keyPosition.line):\(value.keyPosition.column) \(value.position.line):\(value.position.column)"
    switch value.content {
    case .table(let members): return ["\(value.name) {} \(place)"] + members.flatMap(flat).sorted()
    case .list(let elements): return ["\(value.name) [] \(place)"] + elements.flatMap(flat)
    default: return ["\(value.name) \(value.given) \(place)"]
    }
}

private func parse(_ text: String) throws(ConfigurationErrors) -> ConfigurationValue {
    let value = ConfigurationParser.parse(text, file: "f")
    guard value.syntaxErrors.isEmpty else { throw ConfigurationErrors(value.syntaxErrors) }
    return value
}

/// The only value of a text with one key.
private func content(_ value: String) throws -> String {
    let root = try parse("a = \(value)\nb = 1")
    guard case .table(let members) = root.content else { return "" }
    guard case .text(let text) = members.first(where: { $0.name == "a" })?.content else {
        return members.first { $0.name == "a" }?.given ?? ""
    }
    return text
}

@Suite struct `The parser` {
    @Test func `knows where keys and values stand`() throws {
        let text = """
            # a = "comment"
            a = '''
            b = [ ''''
            "c.d" . e = "\\"x = 1" # f
            g = [ 1, [2,
              "]", ], ] \r
              [ table . 'sub' ]
            \th = { i = 1, j.k = "}" }
            [table]
            l = \"\"\"
            m = 1 \\\"\"\" \"\"\"\"\"
            n=1
            """
        let found = try flat(parse(text)).dropFirst().sorted()
        #expect(
            found
                == [
                    #""c.d" {} 4:1 4:1"#, #""c.d".e "\"x = 1" 4:9 4:13"#, #"a "b = [ \'" 2:1 2:5"#, "g [] 5:1 5:5",
                    "g [] 5:10 5:10", #"g "]" 6:3 6:3"#, "g the number 1 5:7 5:7", "g the number 2 5:11 5:11",
                    #"table {} 7:5 7:5"#, #"table.l "m = 1 \"\"\" \"\"" 10:1 10:5"#, "table.n the number 1 12:1 12:3",
                    "table.sub {} 7:13 7:13", "table.sub.h {} 8:2 8:6", "table.sub.h.i the number 1 8:8 8:12",
                    "table.sub.h.j {} 8:15 8:15", #"table.sub.h.j.k "}" 8:17 8:21"#,
                ].sorted())
    }

    @Test(arguments: [
        (#""""#, ""), ("''", ""), (#""a\tb\n\"\\é\u00e9\U0001F98A""#, "a\tb\n\"\\éé🦊"), (#"'a\tb'"#, #"a\tb"#),
        ("\"\"\"\na\r\n b\\\r\n   \n  c\"\"\"", "a\n bc"), ("'''\r\na\\\n'''", "a\\\n"), ("\"\"\"\"\"\"", ""),
        ("'''a'''''", "a''"), ("0", "the number 0"), ("-17", "the number -17"), ("+1_000", "the number 1000"),
        ("0xDead_beef", "the number 3735928559"), ("0o17", "the number 15"), ("0b101", "the number 5"),
        ("-9223372036854775808", "the number -9223372036854775808"), ("true", "true"), ("false # x", "false"),
        ("1.5", "a date or a number that is not whole"), ("-inf", "a date or a number that is not whole"),
        ("1979-05-27T07:32:00Z", "a date or a number that is not whole"), ("[]", "a list"), ("{}", "a table"),
    ])
    func `reads a value`(value: String, expected: String) throws {
        #expect(try content(value) == expected)
    }

    @Test(arguments: [
        ("[é]", 1, 2), ("é = 1", 1, 1), ("a", 1, 2), ("a b = 1", 1, 3), ("= 1", 1, 1), ("a. = 1", 1, 4), ("a =", 1, 4),
        ("a = \n1", 1, 5), ("a = b", 1, 5), ("a = 1 b = 2", 1, 7), ("a = truth", 1, 5), ("a = 01", 1, 5),
        ("a = 1__0", 1, 5), ("a = _1", 1, 5), ("a = 0x", 1, 5), ("a = 0xG", 1, 5), ("a = -0x1", 1, 5),
        ("a = 0b2", 1, 5),
        ("a = 9223372036854775808", 1, 5), ("a = 1é", 1, 5), ("a = +", 1, 5), ("a = --1", 1, 5),
        ("a = \"b", 1, 5), ("a = \"b\nc\"", 1, 5), ("a = 'b", 1, 5), ("a = '''b''", 1, 5), ("a = \"\\q\"", 1, 6),
        ("a = \"\\uD800\"", 1, 6), ("a = \"\\u12\"", 1, 6), ("a = \"\\U00110000\"", 1, 6), ("a = \"\u{1}\"", 1, 6),
        ("a = \"\\", 1, 6), ("a = \"\"\"\\ b\"\"\"", 1, 8), ("\"\"\"a\"\"\" = 1", 1, 1), ("a = [1", 1, 7),
        ("a = [1 2]", 1, 8), ("a = [,]", 1, 6), ("a = {b = 1,}", 1, 12), ("a = {b = 1\n}", 1, 11), ("[a", 1, 3),
        ("[a] b", 1, 5), ("[]", 1, 2), ("[[a]]", 1, 2),
        // Keys and tables that occur twice.
        ("a = 1\na = 2", 2, 1), ("[a]\n[a]", 2, 2), ("[a]\nb = 1\n[a.b]", 3, 4), ("a.b = 1\n[a]", 2, 2),
        ("a.b = 1\na = 1", 2, 1), ("a = {b = 1}\na.c = 1", 2, 1), ("a = {b = 1}\n[a.c]", 2, 2),
        ("[a.b]\n[a]\nb.c = 1", 3, 1), ("a = {b = 1, b = 2}", 1, 13), ("a = 1\n\"a\" = 2", 2, 1),
    ])
    func `refuses what is not TOML, with its place`(text: String, line: Int, column: Int) {
        let error = #expect(throws: ConfigurationErrors.self) { _ = try parse(text) }
        #expect(error?.list.first?.position == TextPosition(line: line, column: column))
        #expect(error?.list.first?.message.hasPrefix("not valid TOML: ") == true)
    }

    @Test(arguments: [
        "[a.b]\n[a]\nc = 1", "[a]\nb.c = 1\n[a.b.d]", "\u{FEFF}a = 1", "a.b = 1\na.c = 2", "", "\r\n", "#",
    ])
    func `accepts unusual text`(text: String) throws {
        _ = try parse(text)
    }

    @Test(arguments: [
        LongText("a.", 300_000, after: "a = 1"), LongText("[", 300_000, before: "a = "),
        LongText("{a = ", 100_000, before: "a = "), LongText("a.", 300_000, before: "[", after: "a]"),
    ])
    func `refuses endless nesting`(text: LongText) {
        #expect(throws: ConfigurationErrors.self) { _ = try parse(text.text) }
    }
}
