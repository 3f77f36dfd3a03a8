import ControlAPI
import Testing

@testable import holdfastctl

/// Whatever is printed, a terminal does nothing but show it.
struct TerminalTests {
    @Test func `only our own colours and line breaks get through`() {
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

    @Test func `reason codes are written as the standard writes them`() {
        #expect(serverCode(0x8E) == "0x8E")
        #expect(serverCode(4) == "0x04")
    }
}
