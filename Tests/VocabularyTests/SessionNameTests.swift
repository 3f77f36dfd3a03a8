import Testing
import Vocabulary

struct SessionNameTests {
    @Test(arguments: ["a", "0", "main", "a-b-", "gateway@edge-17", String(repeating: "a", count: 63)])
    func `a valid name is accepted`(text: String) {
        #expect(SessionName(text)?.description == text)
    }

    @Test(arguments: [
        "", "-a", "A", "a b", "a/b", "ä", "a.b", "@", "a@", "@a", "a@-b", "a@b@c", String(repeating: "a", count: 64),
    ])
    func `a text that would not be safe as a file name or in a command is no name`(text: String) {
        #expect(SessionName(text) == nil)
    }

    @Test func `the name of an instance says which one it is`() {
        #expect(SessionName("gateway@edge-17")?.instance == "edge-17")
        #expect(SessionName("gateway")?.instance == nil)
    }
}
