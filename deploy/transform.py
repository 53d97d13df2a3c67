"""Transforms SAM templates as CloudFormation would, without AWS.

Takes files and prints the transformed template of each as a line of JSON. It needs
the Python of the AWS SAM CLI.
"""

import json
import logging
import os
import sys

os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
logging.disable(logging.WARNING)

from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse


class Policies:
    """Stands in for the look-up of AWS's managed policies. We name none by its name."""

    def load(self):
        return {}


def transformed(file):
    with open(file) as f:
        template = yaml_parse(f)
    template["Globals"]["Function"].pop("CodeUri", None)
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            resource.pop("Metadata", None)  # is for `sam build`
            resource["Properties"]["CodeUri"] = "s3://bucket/key"  # as `sam package` leaves it
    return transform(template, {}, Policies())


for file in sys.argv[1:]:
    print(json.dumps(transformed(file)))
