import ArgumentParser
@main struct HoldfastControl: AsyncParsableCommand { func run() async throws { print("x") } }
