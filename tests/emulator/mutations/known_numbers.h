// SPDX-License-Identifier: Apache-2.0
// Changes of single places that are no damage, by the number of the place: where nothing that
// stands around it tells. The numbers move when kernels change; `--spared` finds those that lie,
// and those of no place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attnjit::emulator {

/// Why relaxed arrivals and waits suffice for what lies in tensor memory.
inline constexpr std::string_view kTensorMemory =
    "what is handed over lies in tensor memory alone: tcgen05.fence orders it, and a relaxed "
    "arrival suffices to signal it (9.7.16.6.4)";

/// The kernels of sm_90a for absorbed MLA.
bool is_sm90_mla(std::string_view subject);

/// Why the change of a kind at its `occurrence`-th place in a subject's kernel is no damage; empty:
/// nothing is known.
std::string_view no_damage_by_number(std::string_view subject, std::string_view kind,
                                     int occurrence);

/// A place that is asked about.
struct NumberedPlace {
  std::string_view subject, kind;
  int occurrence = 0;
};

/// The numbers that are known, and are of none of these places: of what was there once.
std::vector<std::string> numbers_without_place(const std::vector<NumberedPlace>& places);

}  // namespace attnjit::emulator
