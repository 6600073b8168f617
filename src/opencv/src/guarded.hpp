// What keeps exceptions inside a library: a function that fails returns a negative number or a null pointer, and the message
// of its thread stays until the next call.

#pragma once

#include <exception>
#include <string>

inline std::string &message() {
  thread_local std::string text;
  return text;
}

// Runs the call; on an exception keeps its message and returns the other value.
template <typename R, typename F>
R guarded(R otherwise, F call) noexcept {
  try {
    return call();
  } catch (const std::exception &error) {
    try { message() = error.what(); } catch (...) {}
  } catch (...) {
    try { message() = "unknown error"; } catch (...) {}
  }
  return otherwise;
}

// Runs the call: 1, or -1 if it throws.
template <typename F>
int done(F call) noexcept {
  return guarded(-1, [&] {
    call();
    return 1;
  });
}
