import ArgumentParser
import NIOSSL
import TOMLKit
@main struct HoldfastDaemon: AsyncParsableCommand { func run() async throws { print("x", TOMLTable(), TLSConfiguration.makeClientConfiguration()) } }
