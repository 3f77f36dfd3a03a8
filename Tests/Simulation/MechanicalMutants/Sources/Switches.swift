/// What each module with mistakes has besides: the number of the mistake that is switched on, and the functions that ask for it.
enum Switches {
    static let variable = "HOLDFAST_MUTANT"
    static let reachedVariable = "HOLDFAST_MUTANT_REACHED"

    static let source = """
        internal import Glibc

        /// 0: none. Below: none, and which are reached is written down at the end.
        let activeMutant = getenv("HOLDFAST_MUTANT").flatMap { Int(String(cString: $0)) } ?? 0

        nonisolated(unsafe) private let reachedMutants: UnsafeMutablePointer<UInt8> = {
            let reached = UnsafeMutablePointer<UInt8>.allocate(capacity: mutantCapacity)
            reached.initialize(repeating: 0, count: mutantCapacity)
            atexit {
                guard let path = getenv("HOLDFAST_MUTANT_REACHED"), let file = fopen(path, "a") else { return }
                for number in 0..<mutantCapacity where reachedMutants[number] != 0 { fputs("\\(number)\\n", file) }
                fclose(file)
            }
            return reached
        }()
        private let mutantCapacity = 100_000

        @inline(__always) func isMutant(_ number: Int) -> Bool {
            if activeMutant < 0 { reachedMutants[number] = 1 }
            return activeMutant == number
        }

        @inline(__always) func mutantKept(_ number: Int) -> Bool { !isMutant(number) }

        @inline(__always) func mutantTurned(_ number: Int, _ value: Bool) -> Bool { isMutant(number) ? !value : value }

        @inline(__always) func mutantNumber<Number>(_ number: Int, _ value: Number, _ other: Number) -> Number {
            isMutant(number) ? other : value
        }

        @inline(__always) func mutantAnd(_ number: Int, _ left: Bool, _ right: @autoclosure () throws -> Bool) rethrows -> Bool {
            isMutant(number) ? try left || right() : try left && right()
        }

        @inline(__always) func mutantOr(_ number: Int, _ left: Bool, _ right: @autoclosure () throws -> Bool) rethrows -> Bool {
            isMutant(number) ? try left && right() : try left || right()
        }

        @inline(__always) func mutantLess<Value: Comparable>(_ number: Int, _ left: Value, _ right: Value) -> Bool {
            isMutant(number) ? left <= right : left < right
        }

        @inline(__always) func mutantAtMost<Value: Comparable>(_ number: Int, _ left: Value, _ right: Value) -> Bool {
            isMutant(number) ? left < right : left <= right
        }

        @inline(__always) func mutantMore<Value: Comparable>(_ number: Int, _ left: Value, _ right: Value) -> Bool {
            isMutant(number) ? left >= right : left > right
        }

        @inline(__always) func mutantAtLeast<Value: Comparable>(_ number: Int, _ left: Value, _ right: Value) -> Bool {
            isMutant(number) ? left > right : left >= right
        }

        """
}
