// SPDX-License-Identifier: Apache-2.0
// The parameters of kernel entries: what they are called, what they are, what a launch fills them
// with. A kernel's list is made here once; the renderer, plan_launch and the driver read it.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/plan.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// "tensor_map", "pointer", "i32", ..
std::string_view to_string(KernelParameter::Kind kind);
std::string_view name_of(LaunchNumber number);
std::string_view name_of(TensorMapId map);
/// @pre a tensor of the caller's: neither a parameter nor a workspace.
std::string_view name_of(BufferId::Kind buffer);
/// The tensor that a map views: "q", "k", ..
std::string_view tensor_name(TensorMapId map);
/// The name of a buffer in a launch of this plan.
std::string name_of(const KernelPlan& plan, BufferId buffer);

/// The buffer whose elements a tensor map of an attention kernel describes.
BufferId buffer_of(const KernelPlan& plan, TensorMapId map);

KernelParameter parameter(LaunchNumber number);
KernelParameter parameter(TensorMapId map);
/// `cuda_type`: of what the pointer points at.
KernelParameter parameter(std::string name, BufferId buffer, std::string cuda_type);
/// Adds numbers, or a tensor of the caller's under its own name.
template <class Numbers = std::initializer_list<LaunchNumber>>
void add_numbers(const Numbers& numbers, std::vector<KernelParameter>& parameters) {
  for (const LaunchNumber number : numbers) parameters.push_back(parameter(number));
}
void add_array(BufferId::Kind array, const char* cuda_type,
               std::vector<KernelParameter>& parameters);
/// The same of a workspace, under its own name.
KernelParameter workspace_parameter(const KernelPlan& plan, WorkspaceId workspace,
                                    std::string cuda_type);

/// The tensor maps of an attention kernel that takes all of its tensors by TMA. That of O is last.
inline constexpr std::array kForwardMaps{TensorMapId::kQ, TensorMapId::kK, TensorMapId::kV,
                                         TensorMapId::kO};

/// And where the rope parts of Q and K have tensors of their own.
inline constexpr std::array kRopeMaps{TensorMapId::kQ, TensorMapId::kK,     TensorMapId::kV,
                                      TensorMapId::kO, TensorMapId::kQRope, TensorMapId::kKRope};

/// Those of one that copies K and V row by row, O's last, and what it needs for that.
inline constexpr std::array kRowMaps{TensorMapId::kQ, TensorMapId::kO};
inline constexpr std::array kRowCopyNumbers{LaunchNumber::kNumPages,   LaunchNumber::kKPageBytes,
                                            LaunchNumber::kKRowBytes,  LaunchNumber::kKHeadBytes,
                                            LaunchNumber::kVPageBytes, LaunchNumber::kVRowBytes,
                                            LaunchNumber::kVHeadBytes};
/// A tensor of an attention kernel by its address, under its own name, and K and V so.
KernelParameter forward_array(const KernelPlan& plan, BufferId::Kind tensor, const char* cuda_type);
void add_key_parameters(const KernelPlan& plan, std::vector<KernelParameter>& parameters);

/// The parameters of an attention kernel: tensor maps, the arrays that the spec asks for,
/// `numbers`, the scale, the numbers of masks and score modification, and what custom code
/// declares.
/// @pre plan.workspaces is filled.
std::vector<KernelParameter> forward_parameters(const KernelPlan& plan,
                                                std::span<const TensorMapId> maps,
                                                std::span<const LaunchNumber> numbers);

/// Adds what masks and score modification are given: their numbers, and what custom code declares.
void add_function_parameters(const SpecFacts& spec, std::vector<KernelParameter>& parameters);

/// Adds what says how long the sequences of a launch are (templates/common/sequence_lengths.cuh).
void add_length_parameters(const SpecFacts& spec, std::vector<KernelParameter>& parameters);
/// Whether masks and score modifications read a parameter, and not the kernel itself.
bool is_of_masks(const KernelParameter& parameter);

/// Why the parameters of a spec's custom code cannot be kernel parameters; empty: they can.
std::string why_no_parameters(const SpecFacts& spec);

}  // namespace attnjit
