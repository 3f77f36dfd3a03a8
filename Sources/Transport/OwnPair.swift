import Glibc
package import Vocabulary

/// Returns what is wrong with the certificate and the key that a session shows to servers, as a clause: they do not belong
/// together, cannot be used, or the certificate has expired; `nil` if nothing is. It blocks.
package func ownPairProblem(_ options: TLSOptions) -> String? {
    switch LoadedTLS.load(TLSFiles(options, last: nil), last: nil) {
    case .success(let loaded): loaded.expiry(at: time(nil))
    case .failure(let failure): failure.message
    }
}
