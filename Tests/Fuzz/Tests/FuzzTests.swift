import Foundation
import FuzzTargets
import Testing
import Vocabulary

/// A short run of what `make fuzz` does for as long as one likes: the corpus, where every finding is kept, and changes to
/// it that are the same on every run.
@Suite(.timeLimit(.minutes(10)))
struct FuzzTests {
    @Test(arguments: FuzzTarget.allCases)
    func `a fuzz target does not trap or hang on any bytes`(_ target: FuzzTarget) async throws {
        let progress = FileManager.default.temporaryDirectory.appending(path: "holdfast-fuzz-\(UUID())").path()
        defer { try? FileManager.default.removeItem(atPath: progress) }
        // In a process of its own, so that a trap fails this test and not all of them.
        let ending = await #expect(processExitsWith: .success) {
            [name = target.rawValue as String, progress = progress as String] in
            guard let target = FuzzTarget(rawValue: name), let file = fopen(progress, "w") else { exit(EXIT_FAILURE) }
            for (input, seed) in Corpus(target) {
                rewind(file)
                fputs("\(input.name), changed with seed \(seed)\n", file)
                fflush(file)
                target.run(mutated(input.bytes, seed))
            }
        }
        guard ending == nil, let last = FileManager.default.contents(atPath: progress) else { return }
        Issue.record("it ended with \(String(decoding: last, as: UTF8.self).split(separator: "\n").first ?? "")")
    }
}

/// Every file of a target's corpus unchanged (seed 0), then this many changes to each.
private struct Corpus: Sequence {
    struct File {
        var name: String
        var bytes: [UInt8]
    }

    private let files: [File]
    private static let seedsPerFile: UInt64 = 30

    init(_ target: FuzzTarget) {
        let folder = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "../Corpus/\(target.rawValue)").standardized
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path(percentEncoded: false))) ?? []
        precondition(!names.isEmpty, "there is no corpus in \(folder.path())")
        files = names.sorted().compactMap { name in
            FileManager.default.contents(atPath: folder.appending(path: name).path(percentEncoded: false))
                .map { File(name: name, bytes: Array($0)) }
        }
    }

    func makeIterator() -> AnyIterator<(File, UInt64)> {
        AnyIterator(
            files.lazy.flatMap { file in (0...Self.seedsPerFile).lazy.map { (file, $0) } }.makeIterator())
    }
}

/// The bytes with some changed, removed, repeated or put in, as the seed has it.
private func mutated(_ original: [UInt8], _ seed: UInt64) -> [UInt8] {
    guard seed > 0 else { return original }
    var random = SplitMix64(seed: seed &* 0x9e37_79b9 &+ UInt64(original.count))
    var bytes = original
    for _ in 0...Int.random(in: 0..<4, using: &random) {
        let position = Int.random(in: 0...bytes.count, using: &random)
        let end = min(bytes.count, position + Int.random(in: 1...8, using: &random))
        switch Int.random(in: 0..<5, using: &random) {
        case 0: bytes.removeSubrange(position..<end)
        case 1: bytes.insert(contentsOf: bytes[position..<end], at: position)
        case 2: bytes.insert(.random(in: 0...255, using: &random), at: position)
        case 3: for index in position..<end { bytes[index] ^= UInt8(1) << (random.next() % 8) }
        default: for index in position..<end { bytes[index] = [0, 0xFF, 0x7F, 0x80][Int(random.next() % 4)] }
        }
    }
    return bytes
}
