import Testing

@testable import holdfastctl

@Suite struct `The key formerly` {
    static let texts = [
        // Before the first key or table.
        ("# a\n\nuser = \"u\"\n", "# a\n\nformerly = [\"a\", \"b\"]\nuser = \"u\"\n"),
        ("# a\n[tls]\n", "# a\nformerly = [\"a\", \"b\"]\n[tls]\n"),
        ("# a\r\nuser = \"u\"\r\n", "# a\r\nformerly = [\"a\", \"b\"]\r\nuser = \"u\"\r\n"),
        ("# a", "# a\nformerly = [\"a\", \"b\"]\n"), ("", "formerly = [\"a\", \"b\"]\n"),
        // In its present place.
        ("user = \"u\"\nformerly=['a'] # [b]\n", "user = \"u\"\nformerly=[\"a\", \"b\"] # [b]\n"),
        (
            "\tformerly = [\r\n  \"a]\", # ]\r\n]\r\nuser = \"u\"\r\n",
            "\tformerly = [\"a\", \"b\"]\r\nuser = \"u\"\r\n"
        ),
        ("formerly = [ ]", "formerly = [\"a\", \"b\"]"),
        // Not in another one.
        (
            "[x]\nformerly = [\"c\"]\n", "formerly = [\"a\", \"b\"]\n[x]\nformerly = [\"c\"]\n"
        ),
        ("formerly-not = [1]\n", "formerly = [\"a\", \"b\"]\nformerly-not = [1]\n"),
    ]

    @Test(arguments: texts)
    func `is written without changing anything else`(text: String, changed: String) {
        #expect(Array(FormerNames.adding(["a", "b"], to: text).utf8) == Array(changed.utf8))
    }
}
