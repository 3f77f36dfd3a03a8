import CFuzzer
import FuzzTargets
import Glibc

// fuzz TARGET [what libFuzzer takes …]: see `make fuzz`.

private nonisolated(unsafe) var target = FuzzTarget.mqttDecoder

guard let chosen = CommandLine.arguments.dropFirst().first.flatMap({ FuzzTarget(rawValue: $0) }) else {
    fatalError("name one of \(FuzzTarget.allCases.map(\.rawValue).joined(separator: ", "))")
}
target = chosen

// libFuzzer wants its own arguments behind the name of the program.
var count = CommandLine.argc - 1
var arguments: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>? = CommandLine.unsafeArgv + 1
arguments?[0] = CommandLine.unsafeArgv[0]
exit(
    LLVMFuzzerRunDriver(&count, &arguments) { bytes, size in
        target.run(Array(UnsafeBufferPointer(start: bytes, count: size)))
        return 0
    })
