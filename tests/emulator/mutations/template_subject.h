// SPDX-License-Identifier: Apache-2.0
// The generated sm_100a kernels that are damaged: names begin with kTemplatePrefix, and they have
// rules of their own (template_rules.cpp).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "mutation.h"
#include "subject.h"

namespace attnjit::emulator {

inline constexpr std::string_view kTemplatePrefix = "sm_100a";

/// "sm_100a 128 causal", "sm_100a 64 group": both bodies of the kernel run, two and one query tile
/// a CTA; "sm_100a 192/128": two, with K and V in one ring. Errors: kEnvironment without NVRTC.
Result<std::vector<std::unique_ptr<Subject>>> make_template_subjects();

const std::vector<Rule>& template_rules();
const std::vector<LaunchRule>& template_launch_rules();

/// Why a change there is no damage, so that no mutant is made of it; empty: it is one. By what
/// stands around it, not by its number: the kernel changes.
std::string_view template_spares(std::string_view kind, const Context& context);
/// reason_of for these subjects.
std::string_view template_reason_of(const Mutant& mutant);

}  // namespace attnjit::emulator
