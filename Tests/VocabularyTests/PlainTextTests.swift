import Testing
import Vocabulary

@Suite struct PlainTextTests {
    @Test(arguments: [
        ("", ""), ("not allowed", "not allowed"), ("Grüße, 世界 👩‍👩‍👧", "Grüße, 世界 👩‍👩‍👧"),
        ("two\nlines\r\n", "two lines  "), ("a\tb\u{85}c\u{2028}d\u{2029}e", "a b c d e"),
        ("\u{1B}[31mred\u{1B}[0m", "\u{FFFD}[31mred\u{FFFD}[0m"),
        ("\u{0}\u{7}\u{7F}\u{9B}2J", "\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}2J"),
        ("abc\u{202E}fdp.exe\u{2066}\u{200F}", "abc\u{FFFD}fdp.exe\u{FFFD}\u{FFFD}"),
    ])
    func `a text has no effect but to be read`(text: String, shown: String) {
        #expect(text.plain() == shown)
        #expect(shown.plain() == shown)
    }

    @Test func `a long text is cut, and shows that`() {
        #expect(String(repeating: "x", count: 500).plain() == String(repeating: "x", count: 500))
        #expect(String(repeating: "x", count: 60_000).plain() == String(repeating: "x", count: 499) + "…")
        #expect("abcdef".plain(atMost: 3) == "ab…")
        // One letter for people, and any number of marks on it.
        #expect(("e" + String(repeating: "\u{301}", count: 9000)).plain().unicodeScalars.count == 500)
    }
}
