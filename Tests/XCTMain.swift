import Testing

/// The entry point of the test program. SwiftPM looks for it under this name; without it, it would look for tests of
/// XCTest in an index of all sources, which takes a while to write. There are none.
@main
struct TestProgram {
    static func main() async {
        await Testing.__swiftPMEntryPoint() as Never
    }
}
