// swift-tools-version: 6.2
import PackageDescription

// For `make fuzz`: our modules count what is reached and check every access to memory. What they depend on does not: it
// would take much longer to build and to run, and is not under test (inlined parts of it are counted anyway).
let isFuzzed = Context.environment["HOLDFAST_FUZZER"] != nil
let fuzzing = "-sanitize=fuzzer,address"

// Every module of ours is compiled alike: warnings are errors, imports are internal unless a public declaration needs
// them, existentials are written `any`.
let settings: [SwiftSetting] =
    [
        .enableUpcomingFeature("ExistentialAny"),
        .enableUpcomingFeature("InternalImportsByDefault"),
        .enableUpcomingFeature("MemberImportVisibility"),
        .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
        .treatAllWarnings(as: .error),
    ] + (isFuzzed ? [.unsafeFlags([fuzzing, "-enable-testing"])] : [])

let nioCore: Target.Dependency = .product(name: "NIOCore", package: "swift-nio")
let nioPosix: Target.Dependency = .product(name: "NIOPosix", package: "swift-nio")
let nioTLS: Target.Dependency = .product(name: "NIOTLS", package: "swift-nio")
let nioHTTP1: Target.Dependency = .product(name: "NIOHTTP1", package: "swift-nio")
let nioWebSocket: Target.Dependency = .product(name: "NIOWebSocket", package: "swift-nio")
let nioEmbedded: Target.Dependency = .product(name: "NIOEmbedded", package: "swift-nio")
let nioSSL: Target.Dependency = .product(name: "NIOSSL", package: "swift-nio-ssl")
let logging: Target.Dependency = .product(name: "Logging", package: "swift-log")
let serviceLifecycle: Target.Dependency = .product(name: "ServiceLifecycle", package: "swift-service-lifecycle")
let subprocess: Target.Dependency = .product(name: "Subprocess", package: "swift-subprocess")
let systemPackage: Target.Dependency = .product(name: "SystemPackage", package: "swift-system")
let argumentParser: Target.Dependency = .product(name: "ArgumentParser", package: "swift-argument-parser")

/// A module of the product. It may import only modules that stand above it in this file.
func module(_ name: String, _ dependencies: [Target.Dependency] = []) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: settings)
}

func tests(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .testTarget(name: name, dependencies: dependencies, swiftSettings: settings)
}

let package = Package(
    name: "holdfast",
    platforms: [.macOS(.v15)],
    products: [
        .executable(name: "holdfastd", targets: ["holdfastd"]),
        .executable(name: "holdfastctl", targets: ["holdfastctl"]),
        .library(name: "HoldfastClient", targets: ["HoldfastClient", "ControlAPI"]),
        .library(name: "SessionCore", targets: ["SessionCore"]),
        .library(name: "MQTT", targets: ["MQTT"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        // Without its default trait, which would link Foundation.
        .package(url: "https://github.com/swiftlang/swift-subprocess", from: "1.0.2", traits: []),
        .package(url: "https://github.com/apple/swift-system", from: "1.5.0"),
    ],
    targets: [
        // The C interfaces of the system: headers only, no code of ours.
        .systemLibrary(name: "CMalloc"),
        .systemLibrary(name: "CNetlink"),
        .systemLibrary(name: "CSystemd", pkgConfig: "libsystemd", providers: [.apt(["libsystemd-dev"])]),
        .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),

        // A hook of Swift's runtime that Swift has no name for.
        .target(name: "CConcurrency"),
        // A VFS for SQLite, which is a structure of C functions.
        .target(name: "CJoinedWrites", dependencies: ["CSQLite"]),

        // Pure: no I/O, no clocks.
        module("Vocabulary"),
        module("SessionCore", ["Vocabulary"]),
        module("MQTT", ["Vocabulary", nioCore]),
        module("ControlAPI", ["Vocabulary"]),
        module("Session", ["Vocabulary", "SessionCore", "MQTT", "ControlAPI", nioCore]),

        // The files under /etc/holdfast.
        module("Configuration", ["Vocabulary", "SessionCore", "MQTT", "ControlAPI", "Session"]),

        // Shells around one facility of the system each.
        module("NetworkPath", ["Vocabulary", "SessionCore", "CNetlink", nioCore, nioPosix]),
        module("Systemd", ["CSystemd"]),
        module("DurableStore", ["Vocabulary", "MQTT", "Session", "CSQLite", "CJoinedWrites", nioCore]),
        module("Transport", ["Vocabulary", nioCore, nioPosix, nioTLS, nioHTTP1, nioWebSocket, nioSSL]),

        // Everything put together.
        module(
            "Agent",
            [
                "Vocabulary", "SessionCore", "MQTT", "ControlAPI", "Session", "Configuration", "NetworkPath", "Systemd",
                "DurableStore", "Transport", "CConcurrency", "CMalloc",
                nioCore, nioPosix, nioHTTP1, logging, serviceLifecycle, subprocess,
                systemPackage,
            ]),
        module("HoldfastClient", ["ControlAPI", nioCore, nioPosix]),
        .executableTarget(name: "holdfastd", dependencies: ["Agent", argumentParser], swiftSettings: settings),
        .executableTarget(
            name: "holdfastctl", dependencies: ["HoldfastClient", "ControlAPI", "Vocabulary", argumentParser],
            swiftSettings: settings),

        // How the module MQTT is used on its own; its documentation quotes it, and the end-to-end tests run it.
        .executableTarget(
            name: "mqtt-client", dependencies: ["MQTT", nioCore, nioPosix], path: "Examples/MQTTClient",
            swiftSettings: settings),

        // How a program uses the daemon; the documentation of HoldfastClient quotes it, and the end-to-end tests run it.
        .executableTarget(
            name: "echo-client", dependencies: ["HoldfastClient", "ControlAPI"], path: "Examples/Swift",
            swiftSettings: settings),

        // What several suites need: a model server and store, and real servers and networks.
        .target(
            name: "Support", dependencies: ["MQTT", "Session", nioCore, nioPosix], path: "Tests/Support",
            exclude: ["Logind", "Timing"], swiftSettings: settings),
        // A target of its own: importing sd-bus can hide Glibc's socket declarations, depending on the build order.
        .target(
            name: "SupportLogind", dependencies: ["Support", "CSystemd"], path: "Tests/Support/Logind",
            swiftSettings: settings),
        // A target of its own: it imports Testing, and programs are linked with Support.
        .target(name: "SupportTiming", path: "Tests/Support/Timing", swiftSettings: settings),
        tests("VocabularyTests", ["Vocabulary"]),
        tests("SessionCoreTests", ["Vocabulary", "SessionCore"]),
        tests("MQTTTests", ["Vocabulary", "MQTT", "Support", nioCore]),
        tests("ControlAPITests", ["Vocabulary", "ControlAPI", "Support"]),
        tests("SessionTests", ["Vocabulary", "Session", "SessionCore", "MQTT", "ControlAPI", "Support", nioCore]),
        tests(
            "ConfigurationTests",
            ["Configuration", "Support", "Vocabulary", "SessionCore", "MQTT", "ControlAPI", "Session"]),
        tests("NetworkPathTests", ["Vocabulary", "NetworkPath", "SessionCore", "Support", nioCore, nioPosix]),
        tests("SystemdTests", ["Systemd", "Support", "SupportLogind", nioCore, nioPosix]),
        tests(
            "DurableStoreTests",
            ["Vocabulary", "DurableStore", "Session", "SessionCore", "MQTT", "Support", nioCore]),
        tests(
            "TransportTests",
            [
                "Vocabulary", "Transport", "Support", nioCore, nioPosix, nioEmbedded, nioHTTP1, nioWebSocket, nioSSL,
            ]),
        tests("HoldfastClientTests", ["HoldfastClient", "ControlAPI", "Support", nioCore, nioPosix]),
        tests(
            "HoldfastctlTests",
            ["holdfastctl", "HoldfastClient", "ControlAPI", "Configuration", "Support", argumentParser]),
        tests(
            "AgentTests",
            [
                "Agent", "Support", "SupportLogind", "Vocabulary", "SessionCore", "MQTT", "ControlAPI", "Session",
                "Configuration", "NetworkPath", "Systemd", "DurableStore", "Transport", nioCore, nioPosix, logging,
            ]),
        // What bytes from outside reach first, for the fuzzer and for the suite.
        .target(
            name: "FuzzTargets",
            dependencies: [
                "Vocabulary", "MQTT", "ControlAPI", "Configuration", "NetworkPath", "SessionCore", "Agent", "Support",
                nioCore,
            ],
            path: "Tests/Fuzz/Targets", swiftSettings: settings),
        .testTarget(
            name: "FuzzTests", dependencies: ["Vocabulary", "FuzzTargets"], path: "Tests/Fuzz/Tests",
            swiftSettings: settings),
        // Whole daemons, with a model of the server, the network and the disk around them, in virtual time; and random
        // schedules of what can happen to them. In a release it is built with -enable-testing only: see `make simulate`.
        .target(
            name: "SimulationSupport",
            dependencies: [
                "Agent", "Support", "Vocabulary", "SessionCore", "MQTT", "ControlAPI", "Session", "Configuration",
                "NetworkPath", "Systemd", "DurableStore", "Transport", nioCore, logging,
            ], path: "Tests/Simulation/Support", swiftSettings: settings),
        .executableTarget(
            name: "simulate", dependencies: ["SimulationSupport", argumentParser], path: "Tests/Simulation/Program",
            swiftSettings: settings),
        tests(
            "ScenarioTests",
            [
                "Agent", "SimulationSupport", "Support", "Vocabulary", "SessionCore", "MQTT", "ControlAPI", "Session",
                "Configuration", "NetworkPath", "Transport", nioCore,
            ]),
        .testTarget(
            name: "SimulationTests", dependencies: ["SimulationSupport"], path: "Tests/Simulation/Tests",
            swiftSettings: settings),
        // The programs are what it runs: they are built with it and found beside it.
        .testTarget(
            name: "EndToEndTests",
            dependencies: [
                "Vocabulary", "Support", "SupportTiming", "MQTT", "HoldfastClient", "ControlAPI", "Systemd",
                "DurableStore", "holdfastd", "holdfastctl", "mqtt-client", "echo-client",
                nioPosix,
            ], exclude: ["Fixtures"], swiftSettings: settings),
    ]
)

// It can only be linked with libFuzzer.
if isFuzzed {
    package.targets += [
        .systemLibrary(name: "CFuzzer", path: "Tests/Fuzz/CFuzzer"),
        .executableTarget(
            name: "fuzz", dependencies: ["FuzzTargets", "CFuzzer"], path: "Tests/Fuzz/Program",
            swiftSettings: settings, linkerSettings: [.unsafeFlags([fuzzing, "-use-ld=lld"])]),
    ]
}
