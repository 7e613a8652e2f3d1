//! Deep trees and types.
