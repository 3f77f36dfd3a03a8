import Foundation

/// A copy of the repository in which the mistakes are made, and what is built of it.
struct Workshop {
    static let modules = ["SessionCore", "MQTT", "Session"]
    /// The tests of whole daemons.
    static let scenarios = "ScenarioTests"

    struct Failure: Error, CustomStringConvertible {
        var description: String
    }

    let root: URL
    let scratch: URL
    /// Whether the tests of whole daemons are built.
    let hasScenarios: Bool
    private var note: URL { scratch.appending(path: "not-compiled") }
    private var copy: URL { scratch.appending(path: "copy") }
    private var products: URL { scratch.appending(path: "build") }

    var tests: URL { products.appending(path: "release/holdfastPackageTests.xctest") }
    var simulator: URL { products.appending(path: "release/simulate") }

    /// What could not be compiled the last time.
    private var lastRefused: Set<String> {
        let text = try? String(contentsOf: note, encoding: .utf8)
        return Set(text?.split(separator: "\n").map(String.init) ?? [])
    }

    /// What was built the last time, of the same sources.
    func built() throws -> [Site] {
        let refused = lastRefused
        return try found().flatMap(\.sites).filter { !refused.contains($0.key.description) }
    }

    /// Finds all sites, makes all mistakes, and builds. What cannot be compiled is taken out again, and noted for next time.
    /// - Returns: what is built in.
    func build(simulates: Bool) throws -> [Site] {
        try mirror()
        var refused = lastRefused
        let files = try found()
        let total = files.reduce(0) { $0 + $1.sites.count }
        say("\(total) sites in \(files.count) files")
        for round in 1... {
            var rewritings: [String: (rewriting: Rewriting, sites: [Site])] = [:]
            for file in files {
                let sites = file.sites.filter { !refused.contains($0.key.description) }
                let rewriting = Rewriting(file.source, sites)
                try write(rewriting.text, copy.appending(path: file.path))
                rewritings[file.path] = (rewriting, sites)
            }
            let log = try swiftBuild(simulates: simulates)
            guard let log else { break }
            var suspects = Set<String>()
            for (path, line, column) in Self.errors(in: log, below: copy.path + "/") {
                guard let file = rewritings[path] else { throw Failure(description: log.suffix(3_000).description) }
                for index in file.rewriting.suspects(line: line, column: column, sites: file.sites) {
                    suspects.insert(file.sites[index].key.description)
                }
            }
            guard !suspects.isEmpty else { throw Failure(description: String(log.suffix(5_000))) }
            say("round \(round): \(suspects.count) sites cannot be compiled")
            refused.formUnion(suspects)
            try write(refused.sorted().joined(separator: "\n"), note)
        }
        return files.flatMap(\.sites).filter { !refused.contains($0.key.description) }
    }

    private func found() throws -> [(path: String, source: String, sites: [Site])] {
        var number = 0
        return try Self.modules.flatMap { module in
            try Self.files(below: root.appending(path: "Sources/\(module)")).filter { $0.hasSuffix(".swift") }.map {
                name in
                let path = "Sources/\(module)/\(name)"
                let source = try String(contentsOf: root.appending(path: path), encoding: .utf8)
                var sites = SiteFinder.sites(in: source, of: path)
                for index in sites.indices {
                    number += 1
                    sites[index].number = number
                }
                return (path, source, sites)
            }
        }
    }

    // MARK: The copy

    private func mirror() throws {
        for folder in ["Sources", "Tests", "Examples", "Documentation", "man"] {
            let (source, target) = (root.appending(path: folder), copy.appending(path: folder))
            let names = Self.files(below: source).filter { !$0.hasPrefix("Simulation/MechanicalMutants/") }
            let switches = folder == "Sources" ? Self.modules.map { "\($0)/Switches.swift" } : []
            for name in Set(Self.files(below: target)).subtracting(names).subtracting(switches) {
                try FileManager.default.removeItem(at: target.appending(path: name))
            }
            for name in names {
                // Those with mistakes are written later.
                if folder == "Sources", Self.modules.contains(where: { name.hasPrefix($0 + "/") }) { continue }
                try write(Data(contentsOf: source.appending(path: name)), target.appending(path: name))
            }
        }
        for module in Self.modules {
            try write(Switches.source, copy.appending(path: "Sources/\(module)/Switches.swift"))
        }
        let targets = Self.modules.map { "\($0)Tests" } + (hasScenarios ? [Self.scenarios] : [])
        let tests = targets.map { "\"\($0)\"" }.joined(separator: ", ")
        let package = try String(contentsOf: root.appending(path: "Package.swift"), encoding: .utf8)
            .replacing(".treatAllWarnings(as: .error)", with: ".treatAllWarnings(as: .warning)")
        try write(
            package + "\npackage.targets.removeAll { $0.type == .test && ![\(tests)].contains($0.name) }\n",
            copy.appending(path: "Package.swift"))
        let resolved = root.appending(path: "Package.resolved")
        if let data = try? Data(contentsOf: resolved) { try write(data, copy.appending(path: "Package.resolved")) }
    }

    private static func files(below folder: URL) -> [String] {
        guard let all = FileManager.default.enumerator(atPath: folder.path) else { return [] }
        var files: [String] = []
        while let name = all.nextObject() as? String {
            if all.fileAttributes?[.type] as? FileAttributeType == .typeRegular { files.append(name) }
        }
        return files.sorted()
    }

    private func write(_ text: String, _ file: URL) throws { try write(Data(text.utf8), file) }

    /// Leaves what is equal as it is, so that it is not built again.
    private func write(_ data: Data, _ file: URL) throws {
        if (try? Data(contentsOf: file)) == data { return }
        try FileManager.default.createDirectory(at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
        try data.write(to: file)
    }

    // MARK: The build

    /// - Returns: what the compiler said, if that did not work.
    private func swiftBuild(simulates: Bool) throws -> String? {
        // The last module with mistakes first: it needs the others, and nothing else is built in vain.
        var parts = [["--target", "Session"], ["--product", "holdfastPackageTests"]]
        if simulates { parts.append(["--product", "simulate"]) }
        for part in parts {
            let log = scratch.appending(path: "build.log")
            _ = FileManager.default.createFile(atPath: log.path, contents: nil)
            let output = try FileHandle(forWritingTo: log)
            let process = Process()
            process.executableURL = URL(filePath: "/usr/bin/env")
            process.arguments =
                [
                    ProcessInfo.processInfo.environment["SWIFT"] ?? "swift", "build", "--package-path", copy.path,
                    "--scratch-path", products.path, "--configuration", "release", "--disable-index-store",
                    "-Xswiftc", "-enable-testing",
                ] + part
            process.standardOutput = output
            process.standardError = output
            try process.run()
            process.waitUntilExit()
            if process.terminationStatus != 0 {
                return String(decoding: try Data(contentsOf: log), as: UTF8.self)
            }
        }
        return nil
    }

    private static func errors(in log: String, below folder: String) -> [(path: String, line: Int, column: Int)] {
        log.split(separator: "\n").compactMap { line in
            guard line.hasPrefix(folder), line.contains(": error: ") else { return nil }
            let parts = line.dropFirst(folder.count).split(separator: ":", maxSplits: 3)
            guard parts.count == 4, let row = Int(parts[1]), let column = Int(parts[2]) else { return nil }
            return (String(parts[0]), row, column)
        }
    }
}

func say(_ text: String) { FileHandle.standardOutput.write(Data((text + "\n").utf8)) }
