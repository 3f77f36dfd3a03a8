// swift-tools-version: 6.2
import PackageDescription

// What `make mutants` runs. It is a package of its own, so that nothing else has to build swift-syntax.
let package = Package(
    name: "mutants",
    platforms: [.macOS(.v15)],
    dependencies: [
        .package(url: "https://github.com/swiftlang/swift-syntax", from: "603.0.1"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
    ],
    targets: [
        .executableTarget(
            name: "mutants",
            dependencies: [
                .product(name: "SwiftSyntax", package: "swift-syntax"),
                .product(name: "SwiftParser", package: "swift-syntax"),
                .product(name: "SwiftOperators", package: "swift-syntax"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ], path: "Sources",
            swiftSettings: [.treatAllWarnings(as: .error)])
    ]
)
