"""Operations on a running broker, on its own event loop and in plain values. HTTP and `Embedded` are adapters of this
package."""
