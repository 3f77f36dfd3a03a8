import ControlAPI
import Testing

@testable import holdfastctl

/// No output makes a terminal do more than show it.
struct TerminalTests {
    @Test func `only our own colours and line breaks reach the terminal`() {
        #expect(Terminal.shown("\u{1B}[32m●\u{1B}[0m main is connected") == "\u{1B}[32m●\u{1B}[0m main is connected\n")
        #expect(Terminal.shown("one\ntwo") == "one\ntwo\n")
        #expect(
            Terminal.shown("a\u{1B}[2Jb\u{1B}]0;title\u{7}c\u{9B}1m")
                == "a\u{FFFD}[2Jb\u{FFFD}]0;title\u{FFFD}c\u{FFFD}1m\n")
    }

    @Test func `JSON for a terminal has escapes for control characters, and is the same JSON`() throws {
        let value = JSONValue.object(["text": .string("a\u{9B}2J\u{7F}\u{202E}é\n")])
        let line = JSONText.escaped(JSONText.line(value))
        #expect(String(decoding: line, as: UTF8.self) == #"{"schema":1,"text":"a\u009b2J\u007f\u202eé\n"}"# + "\n")
        #expect(try JSONValue(parsing: line.dropLast()) == JSONValue(parsing: JSONText.line(value).dropLast()))
    }

    @Test(
        arguments: [
            ([:], false), (["LANG": "C"], true), (["LANG": "POSIX"], true), (["LANG": "en_US.ISO-8859-1"], true),
            (["LANG": "C.UTF-8"], false), (["LANG": "de_DE.utf8"], false), (["LC_ALL": "", "LANG": "C.UTF-8"], false),
            (["LC_ALL": "C", "LANG": "C.UTF-8"], true), (["LC_CTYPE": "C.UTF-8", "LANG": "C"], false),
        ] as [([String: String], Bool)])
    func `a locale tells whether a terminal understands UTF-8`(_ variables: [String: String], _ isASCII: Bool) {
        #expect(TerminalEncoding.isASCII { variables[$0] } == isASCII)
    }

    @Test func `a terminal that understands only ASCII gets no other characters, and the same JSON`() throws {
        #expect("\u{1B}[32m●\u{1B}[0m a → “b…” ▁█ é会".inASCII == "\u{1B}[32m*\u{1B}[0m a > \"b>\" _# ??")
        let line = JSONText.line(.object(["text": .string("é🚦\u{7}")]))
        let shown = JSONText.escaped(line, inASCII: true)
        #expect(String(decoding: shown, as: UTF8.self) == #"{"schema":1,"text":"\u00e9\ud83d\udea6\u0007"}"# + "\n")
        #expect(try JSONValue(parsing: shown.dropLast()) == JSONValue(parsing: line.dropLast()))
    }

    @Test(
        arguments: [
            ("", 0), ("main", 4), ("会議室", 6), ("한", 2), ("\u{1112}\u{1161}\u{11AB}", 2), ("ａ", 2), ("ｱ", 1),
            ("e\u{301}", 1), ("é", 1), ("\u{200B}", 0), ("🚦", 2), ("🇩🇪", 2), ("👩‍💻", 2), ("●→…█", 4),
        ])
    func `a character takes as many columns as a terminal gives it`(_ text: String, _ columns: Int) {
        #expect(text.columns == columns)
        #expect(Terminal.room(for: "\u{1B}[32m\(text)\u{1B}[0m") == columns)
    }

    @Test func `wide characters leave a table aligned`() {
        #expect(
            Columns.table(["ROOM", "USER"], [["会議室", "a"], ["lab", "b"]]) == [
                "ROOM    USER", "会議室  a", "lab     b",
            ])
    }

    @Test func `one long name does not hide the other columns of a narrow terminal`() {
        let name = "a-gateway-in-the-basement-of-plant-07"
        let rows = [["gw-1", "connected", "-"], [name, "connecting (waiting-for-network)", "no route to the server"]]
        func table(_ width: Int?) -> [String] { Columns.table(["SESSION", "STATE", "REASON"], rows, width: width) }
        #expect(table(nil).last == "\(name)  connecting (waiting-for-network)  no route to the server")
        #expect(
            table(52) == [
                "SESSION           STATE             REASON", "gw-1              connected         -",
                "a-gatewa…lant-07  connecting (wai…  no route to the server",
            ])
        #expect(Columns.table(["SESSION", "STATE"], [["gw-1", "x"]], width: 14) == ["SESSION  STATE", "gw-1     x"])
    }

    @Test func `a table of whose last column too little would be seen becomes a list`() {
        let (heading, row) = (["PROGRAM", "USER", "RECEIVES"], ["holdfastctl", "root", "main: a/#, b/#, and others"])
        #expect(Columns.table(heading, [row], width: 35).count == 2)
        #expect(
            Columns.table(heading, [row], width: 34) == [
                "holdfastctl", "  USER      root", "  RECEIVES  main: a/#, b/#, and", "            others",
            ])
        #expect(Columns.table(heading, [row], width: 34, isLineEach: true).count == 2)
    }

    @Test func `a table whose last column would not be seen becomes a list`() {
        let heading = ["SESSION", "STATE", "SINCE", "REASON"]
        let rows = [["gw-1", "connected", "3 min", "-"], ["gw-2", "failed", "2 min", "the server refuses the login"]]
        #expect(
            Columns.table(heading, rows, width: 24, marks: ["32", "31"]) == [
                "\u{1B}[32m●\u{1B}[0m gw-1", "  STATE  connected", "  SINCE  3 min", "\u{1B}[31m●\u{1B}[0m gw-2",
                "  STATE   failed", "  SINCE   2 min", "  REASON  the server", "          refuses the",
                "          login",
            ])
    }

    @Test(arguments: [("gw-100", 6, "gw-100"), ("gw-1000", 6, "gw-…00"), ("会議室の室", 6, "会…室"), ("ab", 1, "…")])
    func `the middle is cut out of a long name`(_ name: String, _ width: Int, _ shortened: String) {
        #expect(Columns.shortened(name, to: width) == shortened)
    }

    @Test func `reason codes are written as the standard writes them`() {
        #expect(serverCode(0x8E) == "0x8E")
        #expect(serverCode(4) == "0x04")
    }

    @Test(
        arguments: [
            ("short", 10, 2, ["short"]),
            ("one two three four", 9, 2, ["one two", "  three", "  four"]),
            ("  Name  a value that is long", 16, 8, ["  Name  a value", "        that is", "        long"]),
            // There is no room for the indentation.
            ("  Name  a value", 12, 8, ["  Name  a", "  value"]),
            ("a mqtts://broker.example:8883 b", 10, 2, ["a", "  mqtts://broker.example:8883", "  b"]),
            ("\u{1B}[32m●\u{1B}[0m one two", 6, 2, ["\u{1B}[32m●\u{1B}[0m one", "  two"]),
            ("    → one two", 9, 6, ["    → one", "  two"]),
            ("  Room  会議室 会議室", 16, 8, ["  Room  会議室", "        会議室"]),
        ] as [(String, Int, Int, [String])])
    func `lines are cut between words`(_ line: String, _ width: Int, _ indent: Int, _ parts: [String]) {
        #expect(Columns.wrapped(line, to: width, indent: indent) == parts)
        #expect(Columns.wrapped(line, to: nil, indent: indent) == [line])
    }
}
