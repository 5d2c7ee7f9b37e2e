#!/usr/bin/env bash
# Makes the PTX of the kernels in this folder again (needs nvcc); the results are checked in, so that tests need no compiler.
set -euo pipefail
cd "$(dirname "$0")"
nvcc -ptx -lineinfo -arch=sm_90a -w simt.cu -o simt.sm_90a.ptx
nvcc -ptx -lineinfo -arch=sm_100a -w tcgen05.cu -o tcgen05.sm_100a.ptx
nvcc -ptx -arch=sm_90a -w speed.cu -o speed.sm_90a.ptx
nvcc -ptx -lineinfo -arch=sm_100a -w launch_control.cu -o launch_control.sm_100a.ptx
nvcc -ptx -lineinfo -arch=sm_100a gemm.cu -o gemm.sm_100a.ptx
nvcc -ptx -lineinfo -arch=sm_100a attention_tile.cu -o attention_tile.sm_100a.ptx
sed -i -E 's|(\.file[[:space:]]+[0-9]+ ")[^"]*/|\1|' *.ptx
