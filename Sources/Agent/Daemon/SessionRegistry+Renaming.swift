import Configuration
import ControlAPI
import DurableStore
import Logging
import Session
import SessionCore

// A session that continues under another name. Its state is moved in the store in one transaction, after the session was
// stopped and before it is started again. Programs that use it have to use the new name.

extension SessionRegistry {
    struct Renaming {
        var from: SessionName
        var to: SessionName
        /// The session's driver so far.
        var driver: SessionDriver
        var configuration: SessionConfiguration
    }

    /// Checks a wish before anything is changed.
    func renaming(
        _ wanted: DaemonReloadMethod.Renaming?, _ loaded: LoadedConfiguration
    ) async throws(RPCError) -> Renaming? {
        guard let wanted else { return nil }
        guard let from = SessionName(wanted.from), let to = SessionName(wanted.to), from.template == nil,
            to.template == nil
        else {
            throw .invalidParameters(
                "only sessions with a file of their own can be renamed, not instances or templates")
        }
        let driver = try await driver(wanted.from)
        guard loaded[from] == nil else {
            throw .invalidParameters("there still is a file for session \"\(from)\"")
        }
        guard entries[to] == nil else { throw .invalidParameters("there already is a session \"\(to)\"") }
        switch loaded[to] {
        case nil: throw .invalidParameters("there is no file for session \"\(to)\"")
        case .failure(let errors)?: throw .badConfiguration(errors.summary)
        case .success(let configuration)?:
            try await checkFree(to)
            return Renaming(from: from, to: to, driver: driver, configuration: configuration)
        }
    }

    private func checkFree(_ name: SessionName) async throws(RPCError) {
        guard let surroundings else { throw .shuttingDown }
        let store = surroundings.store
        let isFree: Bool
        do throws(StoreError) {
            isFree = try await surroundings.commits.watch.answer { () throws(StoreError) in
                try await store.ownsNothing(name)
            }
        } catch {
            throw .internalError("the state of the session cannot be moved: \(error)")
        }
        guard isFree else {
            throw .invalidParameters(
                "messages, consumers or publications of an earlier session \"\(name)\" are on disk",
                hint: "choose another name, or drop them under that name first")
        }
    }

    /// - Throws: if the session was restarted since the wish was checked, which then has to be checked again.
    func checkStill(_ renaming: Renaming) throws(RPCError) {
        guard entries[renaming.to] == nil, case .running(let driver)? = entries[renaming.from],
            driver === renaming.driver
        else { throw .sessionIsRestarting }
    }

    /// Moves the state of a session that was stopped, and starts it under its new name. If that fails, it is listed as
    /// failed: it must not start without its state.
    func carryOut(_ renaming: Renaming, wasUp: Bool) async throws(RPCError) {
        guard let surroundings else { return }
        let (from, to, store, queue) = (renaming.from, renaming.to, surroundings.store, historyQueue)
        do throws(StoreError) {
            try await surroundings.commits.watch.answer { () throws(StoreError) in
                await queue?.everythingRecorded()
                try await store.rename(from, to: to)
            }
        } catch {
            let sentence = "the state of session \(from) cannot be moved to \(to): \(error)"
            await list(to, as: .store(sentence, later: nil))
            throw .internalError(sentence)
        }
        var programs = ParkedPrograms()
        changeParked(of: from) {
            (programs.credential, programs.history) = ($0.credential, $0.history)
            ($0.credential, $0.history) = (nil, nil)
        }
        if !programs.isEmpty { parked[to] = programs }
        logger.notice(
            "\(to): it was called \(from) before, and has its messages and its history",
            metadata: ["HOLDFAST_SESSION": "\(to)"])
        // What the server has under another client identifier was never this session's.
        let isSameClient = renaming.driver.configuration.clientID == renaming.configuration.clientID
        do throws(StoreError) {
            try await startNowOrLater(
                to,
                Start(
                    configuration: renaming.configuration, wasUp: wasUp,
                    obsolete: isSameClient ? [.failure] : [.failure, .sessionAtServer],
                    decided: .some(await renaming.driver.session.verdict)))
        } catch {
            throw .internalError(unreadable(to, error).reason.message)
        }
    }
}
