// SPDX-License-Identifier: Apache-2.0
// The definitions of fmt, from its headers: Debian has no static library of it, and a wheel may
// need no shared one.
#include <fmt/format-inl.h>

namespace fmt {
inline namespace v9 {
namespace detail {

// What fmt/core.h and fmt/format.h declare as defined elsewhere.
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template auto locale_ref::get<std::locale>() const -> std::locale;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;

}  // namespace detail
}  // namespace v9
}  // namespace fmt
